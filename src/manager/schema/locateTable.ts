import { settingsMade, type RefuseSetting } from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";

/** Longest name PostgreSQL keeps, in bytes. */
const longestName = 63;

/**
 * Where an entry's tasks are: where it says itself, else where its role, database or server says,
 * else where the file says.
 *
 * @param client a session of the entry's own
 */
export async function locateTable(
  client: Pick<Client, "query">,
  { fixed, parameters }: Entry,
  refuse: RefuseSetting,
): Promise<TableLocation> {
  const names = { schema: "pg_task.schema", table: "pg_task.table" } as const;
  const made = await settingsMade(client, Object.values(names));
  const one = (what: keyof TableLocation): string => {
    const name = names[what];
    const own = fixed[what];
    if (own !== undefined) return own;
    const setting = made.get(name);
    if (setting === undefined) return parameters[name];
    if (Buffer.byteLength(setting) <= longestName) return setting;
    refuse(name, setting, parameters[name]);
    return parameters[name];
  };
  return { schema: one("schema"), table: one("table") };
}

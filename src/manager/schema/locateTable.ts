import { readServerSettings, type OnInvalidSetting } from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { maxNameBytes } from "./taskTable.js";

/**
 * Finds the schema and the name of an entry's table: in the entry, or else in the setting of its role, database or
 * server, or else in the file. `client` is a connection of the entry's user.
 */
export async function locateTable(
  client: Pick<Client, "query">,
  { fixed, parameters }: Entry,
  refuse: OnInvalidSetting,
): Promise<TableLocation> {
  const names = { schema: "pg_task.schema", table: "pg_task.table" } as const;
  const made = await readServerSettings(client, Object.values(names));
  const one = (what: keyof TableLocation): string => {
    const name = names[what];
    const own = fixed[what];
    if (own !== undefined) return own;
    const setting = made.get(name);
    if (setting === undefined) return parameters[name];
    if (Buffer.byteLength(setting) <= maxNameBytes) return setting;
    refuse(name, setting, parameters[name]);
    return parameters[name];
  };
  return { schema: one("schema"), table: one("table") };
}

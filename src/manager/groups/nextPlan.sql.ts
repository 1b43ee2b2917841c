import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf } from "../sql/byId.js";

/**
 * Time until the next task that is not due yet becomes due, in ms, null when there is none. Servers
 * before 17 cannot subtract from an infinite plan, and what is planned for never becomes due.
 *
 * @param except tasks not to look at this time.
 */
export async function nextPlan(
  client: Client,
  table: TaskTable,
  except: readonly string[] = [],
): Promise<number | null> {
  const { rows } = await client.query<{ ms: number | null }>({
    name: "nearest plan",
    text: `
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms
FROM ${table.qualified} WHERE NOT ready AND plan > '-infinity' AND plan < 'infinity' AND ${isNoneOf("id", "$1")}`,
    values: [except],
  });
  const ms = rows[0]?.ms ?? null;
  return ms === null ? null : Math.max(0, ms);
}

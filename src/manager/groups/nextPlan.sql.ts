import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNotIn } from "../sql/fragments.sql.js";

/**
 * Reads the time until the next task becomes due, in ms. Infinite planned times are left out, because they never come,
 * and servers before version 17 cannot subtract from them.
 *
 * @param except ids of tasks to skip
 * @returns null if no task is planned
 */
export async function nextPlan(
  client: Client,
  table: TaskTable,
  except: readonly string[] = [],
): Promise<number | null> {
  const { rows } = await client.query<{ ms: number | null }>({
    name: "next plan",
    text: `
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms
FROM ${table.qualified} WHERE NOT ready AND plan > '-infinity' AND plan < 'infinity' AND ${isNotIn("id", "$1")}`,
    values: [except],
  });
  const ms = rows[0]?.ms ?? null;
  return ms === null ? null : Math.max(0, ms);
}

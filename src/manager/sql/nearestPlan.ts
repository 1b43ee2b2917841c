import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../table.js";

/** Time until the next task that is not due yet becomes due, in ms, null when there is none. */
export async function nearestPlan(client: Client, table: TaskTable): Promise<number | null> {
  const { rows } = await client.query<{ ms: number | null }>({
    name: "nearest plan",
    text: `
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms
FROM ${table.qualified} WHERE NOT ready AND plan < 'infinity'`,
  });
  const ms = rows[0]?.ms ?? null;
  return ms === null ? null : Math.max(0, ms);
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isToLookUp } from "../dependencies/lookUp.sql.js";
import { isNotIn } from "../sql/fragments.sql.js";

export interface NextPlan {
  /** Time until the next task becomes due, in ms. Null if no task is planned. */
  readonly ms: number | null;
  /** Whether there are tasks whose predecessors have to be looked up. */
  readonly mustLookUp: boolean;
}

/**
 * Reads the time until the next task becomes due. Infinite planned times are left out, because they never come,
 * and servers before version 17 cannot subtract from them.
 *
 * @param except ids of tasks to skip
 */
export async function nextPlan(client: Client, table: TaskTable, except: readonly string[] = []): Promise<NextPlan> {
  const { rows } = await client.query<NextPlan>({
    name: "next plan",
    text: `
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms,
  ${mustLookUp(table)} AS "mustLookUp"
FROM ${table.qualified} WHERE NOT ready AND plan > '-infinity' AND plan < 'infinity' AND ${isNotIn("id", "$1")}`,
    values: [except],
  });
  const ms = rows[0]?.ms ?? null;
  return { ms: ms === null ? null : Math.max(0, ms), mustLookUp: rows[0]?.mustLookUp === true };
}

const mustLookUp = ({ qualified, features }: TaskTable): string =>
  features.has("order") ? `EXISTS (SELECT FROM ${qualified} WHERE ${isToLookUp})` : "false";

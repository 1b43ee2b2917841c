import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isToLookUp } from "../sql/fragments.sql.js";
import { isNotIn } from "../schema/startRule.sql.js";

export interface NextPlan {
  /** Time until the next task becomes due, in ms. Null if no task is planned. */
  readonly ms: number | null;
  /** Whether there are tasks whose predecessors have to be looked up. */
  readonly mustLookUp: boolean;
  /** The server's clock, in ms since 1970. Null if it was not read. */
  readonly clockMs: number | null;
}

/** The row of `nextPlanQuery`. */
export interface NextPlanRow {
  readonly ms: number | null;
  readonly must_look_up: boolean;
  readonly clock_ms: number;
}

/**
 * Reads the time until the next task becomes due.
 *
 * @param except ids of tasks to skip
 */
export async function nextPlan(client: Client, table: TaskTable, except: readonly string[] = []): Promise<NextPlan> {
  const { rows } = await client.query<NextPlanRow>({
    name: "next plan",
    text: nextPlanQuery(table, "$1"),
    values: [except],
  });
  return toNextPlan(rows[0]);
}

/**
 * SQL of the query of `nextPlan`. Infinite planned times are left out, because they never come, and servers before
 * version 17 cannot subtract from them.
 *
 * @param except the parameter or literal with the ids of the tasks to skip
 */
export const nextPlanQuery = (table: TaskTable, except: string): string => `
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms, ${mustLookUp(table)} AS must_look_up,
  (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS clock_ms
FROM ${table.qualified} WHERE NOT ready AND plan > '-infinity' AND plan < 'infinity' AND ${isNotIn("id", except)}`;

export function toNextPlan(row: NextPlanRow | undefined): NextPlan {
  const ms = row?.ms ?? null;
  return {
    ms: ms === null ? null : Math.max(0, ms),
    mustLookUp: row?.must_look_up === true,
    clockMs: row?.clock_ms ?? null,
  };
}

const mustLookUp = ({ qualified }: TaskTable): string => `EXISTS (SELECT FROM ${qualified} WHERE ${isToLookUp})`;

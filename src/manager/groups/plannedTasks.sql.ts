/** Statements about planned tasks: they mark those as due whose time has come, and tell when the next one will be. */
import type { Client } from "../../shared/postgres/client.js";
import type { DueTask } from "../model/tasks.js";
import { maxMarkedDue } from "../model/tuning.js";
import { isNotIn, maxOthers } from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isAlone, isToLookUp } from "../sql/fragments.sql.js";

/** SQL that reads the ids of tasks to mark as due, except the ids in parameter $1. */
const overdue = ({ qualified }: TaskTable): string => `
  SELECT id FROM ${qualified} WHERE NOT ready AND plan <= now() AND owner IS NULL AND ${isNotIn("id", "$1")}
  ORDER BY plan LIMIT ${maxMarkedDue} FOR NO KEY UPDATE SKIP LOCKED`;

/** Marks planned tasks as due when their time has come. `more` says whether there may be more of them. */
export async function markDue(
  client: Client,
  table: TaskTable,
  except: readonly string[] = [],
): Promise<{ readonly due: readonly DueTask[]; readonly more: boolean }> {
  const { rows } = await client.query<DueTask>({
    name: "mark due",
    text: `
UPDATE ${table.qualified} SET ready = true WHERE id = ANY (ARRAY(${overdue(table)}))
RETURNING id::text AS id, hash, ${maxOthers} AS max`,
    values: [except],
  });
  return { due: rows, more: rows.length === maxMarkedDue };
}

export async function readMarkable(client: Client, table: TaskTable, except: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "due task ids",
    text: overdue(table),
    values: [except],
  });
  return rows.map(({ id }) => String(id));
}

/** Marks the given tasks as due if their time has come, as `markDue` does. */
export async function markListedDue(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<readonly DueTask[]> {
  const { rows } = await client.query<DueTask>({
    name: "mark these due",
    text: `
UPDATE ${table.qualified} SET ready = true
WHERE id = ANY (ARRAY(
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) AND ready IS FALSE AND plan <= now() AND owner IS NULL
  FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id::text AS id, hash, ${maxOthers} AS max`,
    values: [ids],
  });
  return rows;
}

export interface NextPlan {
  /** Time until the next task becomes due, in ms. Null if no task is planned. */
  readonly ms: number | null;
  readonly mustLookUp: boolean;
  /** Whether a task that is to run alone is due. */
  readonly isAloneDue: boolean;
  /** The server's clock, in ms since 1970. Null if it was not read. */
  readonly clockMs: number | null;
}

export interface NextPlanRow {
  readonly ms: number | null;
  readonly must_look_up: boolean;
  readonly is_alone_due: boolean;
  readonly clock_ms: number;
}

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
SELECT (extract(epoch FROM min(plan) - clock_timestamp()) * 1000)::float8 AS ms, EXISTS (SELECT FROM ${table.qualified} WHERE ${isToLookUp}) AS must_look_up,
  EXISTS (SELECT FROM ${table.qualified} WHERE ${isAlone} AND plan <= now()) AS is_alone_due,
  (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS clock_ms
FROM ${table.qualified} WHERE NOT ready AND plan > '-infinity' AND plan < 'infinity' AND ${isNotIn("id", except)}`;

export function toNextPlan(row: NextPlanRow | undefined): NextPlan {
  const ms = row?.ms ?? null;
  return {
    ms: ms === null ? null : Math.max(0, ms),
    mustLookUp: row?.must_look_up === true,
    isAloneDue: row?.is_alone_due === true,
    clockMs: row?.clock_ms ?? null,
  };
}

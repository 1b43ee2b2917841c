import type { TaskTable } from "../../manager/schema/taskTable.js";
import { readServerSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { parseSqlstates } from "../../shared/parseSqlstates.js";
import { canReadOwed } from "../../manager/schema/owedTable.js";
import { hasSchedule, isOwing, owedReason } from "../../manager/schema/schedulesView.sql.js";
import { readChain } from "../queries/taskChain.js";
import { isActiveSql, isoTimeSql } from "../sqlFragments.js";

/** Matches errors that say themselves why the task was not tried again. */
const explainedErrors = "task took its own session down|with the same key takes its place|next run was not planned";

/**
 * Why a task has failed although its `retry` allows more tries. The row does not have the last SQLSTATE, and the
 * setting may have changed, so this names the list that decides. The query in a rule has no tries.
 */
export async function explainNotRetried(
  client: Queryable,
  table: TaskTable,
  id: string,
  parameters: Entry["parameters"],
): Promise<string | null> {
  const { rows } = await client.query<{ more: number; list: string | null }>(
    `SELECT (t.retry - coalesce(t.attempt, 0))::float8 AS more, t.sqlstate::text AS list FROM ${table.qualified} AS t
     WHERE t.id = $1::bigint AND t.state::text = 'FAIL' AND t.owner IS NULL AND t.retry > coalesce(t.attempt, 0)
       AND t.error::text !~ $2 AND (t.wait >= 0) IS NOT FALSE LIMIT 1`,
    [id, explainedErrors],
  );
  const [row] = rows;
  if (row === undefined) return null;
  const { more, list } = row;
  const decides =
    list === null
      ? `pg_task.sqlstate, which is now ${JSON.stringify(await readSqlstates(client, parameters))}`
      : `its sqlstate ${list}`;
  return `it was not tried again, although its retry allows ${more} more ${more === 1 ? "try" : "tries"}: its error is not among those to retry (${decides}), or is one that never is (docs/failure.md)`;
}

/** To be pasted. It changes the row that goes on with the schedule: in the ended row it would have no effect. */
export function retryEveryError(table: TaskTable, id: string, { repeats, successor }: ScheduleState): string {
  const change = (row: string): string => `UPDATE ${table.qualified} SET sqlstate = '{}' WHERE id = ${row};`;
  if (!repeats) return `to have every error tried again, first: ${change(id)}`;
  return successor === null
    ? "to have every error of a schedule tried again, set its sqlstate to '{}' in the row that pg-task list --schedules shows"
    : `to have every error of the schedule's next runs tried again: ${change(successor.id)}`;
}

async function readSqlstates(client: Queryable, parameters: Entry["parameters"]): Promise<string> {
  const name = "pg_task.sqlstate";
  const text = (await readServerSettings(client, [name])).get(name);
  return text === undefined || parseSqlstates(text) === null ? parameters[name] : text;
}

const searchMs = 1_000;

export interface Successor {
  readonly id: string;
  readonly state: string;
  readonly plan: string;
}

interface ScheduleState {
  readonly repeats: boolean;
  readonly successor: Successor | null;
  /** Why the next run could not be planned yet. Null if this is not so, or this role may not know. */
  readonly owed: string | null;
}

const noSchedule: ScheduleState = { repeats: false, successor: null, owed: null };

/** Of a task that has ended, how its schedule goes on. */
export async function readScheduleState(client: Queryable, table: TaskTable, id: string): Promise<ScheduleState> {
  const isSchedule = hasSchedule("t");
  const isOwed = (await canReadOwed(client, table))
    ? `${isOwing("t")} AND EXISTS (SELECT FROM ${table.qualifiedOwed} AS o WHERE o.task = t.id)`
    : "false";
  const { rows } = await client.query<{ repeats: boolean; owed: string | null }>(
    `SELECT ${isSchedule} AND NOT ${isActiveSql} AS repeats,
       CASE WHEN ${isOwed} THEN ${owedReason("t")} END AS owed
     FROM ${table.qualified} AS t WHERE t.id = $1::bigint`,
    [id],
  );
  const [{ repeats, owed } = noSchedule] = rows;
  if (!repeats || owed !== null) return { repeats, successor: null, owed };
  const { descendants } = await readChain(client, table, id, { characters: 1, scanLimitMs: searchMs });
  // A task can also insert other schedules, which become its children.
  const { rows: successors } = await client.query<Successor>(
    `SELECT t.id::text AS id, t.state::text AS state, ${isoTimeSql("t.plan")} AS plan FROM ${table.qualified} AS t
     WHERE t.id = ANY ($2::bigint[]) AND t.state::text IN ('PLAN', 'TAKE', 'WORK') AND ${isSchedule}
       AND t.input::text = (SELECT f.input::text FROM ${table.qualified} AS f WHERE f.id = $1::bigint)
     ORDER BY t.id DESC LIMIT 1`,
    [id, descendants.map((task) => task.id)],
  );
  return { repeats: true, successor: successors[0] ?? null, owed: null };
}

export const owedRemedy = (id: string): string =>
  `change what refuses it, and it is planned within a minute; pg-task retry ${id} runs the task now, and pg-task stop ${id} ends the schedule`;

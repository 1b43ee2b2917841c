import { canReadOwed } from "../../manager/schema/owedTable.js";
import { hasSchedule, isOwing, owedReason } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { readChain } from "../queries/taskChain.js";
import { isoTimeSql } from "../sqlFragments.js";

/** Time limit for the search for the row that goes on with a schedule, in ms. */
const searchMs = 1_000;

/** The unfinished row that goes on with the schedule of an ended run. */
export interface Successor {
  readonly id: string;
  readonly state: string;
  /** When it is planned, in ISO 8601. `infinity` if the schedule is paused. */
  readonly plan: string;
}

/** Whether a task is a run of a schedule, and how the schedule goes on. */
export interface ScheduleState {
  readonly repeats: boolean;
  readonly successor: Successor | null;
  /** Why the next run could not be planned yet. Null if this is not so, or this role may not know. */
  readonly owed: string | null;
}

export const noSchedule: ScheduleState = { repeats: false, successor: null, owed: null };

/** Reads the state of an ended run's schedule. The row that goes on with it is searched for a second. */
export async function readScheduleState(client: Queryable, table: TaskTable, id: string): Promise<ScheduleState> {
  const isSchedule = hasSchedule("t");
  const isOwed = (await canReadOwed(client, table))
    ? `${isOwing("t")} AND EXISTS (SELECT FROM ${table.qualifiedOwed} AS o WHERE o.task = t.id)`
    : "false";
  const { rows } = await client.query<{ repeats: boolean; owed: string | null }>(
    `SELECT ${isSchedule} AS repeats, CASE WHEN ${isOwed} THEN ${owedReason("t")} END AS owed
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

/** What to do about a schedule whose next run could not be planned yet. */
export const owedRemedy = (id: string): string =>
  `change what refuses it, and it is planned within a minute; pg-task retry ${id} runs the task now, and pg-task stop ${id} ends the schedule`;

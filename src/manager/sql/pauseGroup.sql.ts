import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { deferredArray, deferredSetting } from "../schema/startRule.sql.js";
import { arrayLiteral } from "../../shared/postgres/arrayText.js";

/** A task that still has to be replanned, because its row was locked when its group paused. */
export interface DeferredPause {
  readonly id: string;
  /** Stop time of the run that caused the pause, as text from the server. */
  readonly since: string;
}

/** SQL of the planned time after a pause that began at `p.since`. */
const pause = `interval '1 ms' * abs(t.max::float8)`;
const passed = `extract(epoch FROM p.since - t.plan)::float8 * 1000 / abs(t.max::float8)`;
const next = `
    CASE WHEN t.drift OR NOT isfinite(t.plan) THEN p.since + ${pause} ELSE t.plan + ${pause} * greatest(0, floor(${passed}) + 1) END`;

/** Stores in `due` from which time the schedule of a moved task goes on. */
const keepPlace = ", due = CASE WHEN t.rule IS NOT NULL THEN coalesce(t.due, t.plan) ELSE t.due END";

/** SQL condition: a pause applies to the task. */
const due = (t: string): string => `${t}ready IS NOT NULL AND ${t}plan <= now() AND ${t}max < 0 AND ${t}owner IS NULL`;

/**
 * SQL of CTEs that pause the groups of the runs in the CTE `ended` (columns hash, max, stop) whose `max` is negative.
 * Due tasks of these groups are replanned if their own `max` is negative, each by its own |max| in ms. With `drift`, the
 * new planned time is stop + |max|.
 * Otherwise it is the first `plan + n × |max|` after the stop. The CTE `pause_left` (columns id, since) lists the tasks
 * that could not be replanned: their rows are locked, or they take over the schedule of a task with their key in the
 * same statement, which updates a row only once. The CTE `key_waits` lists the latter and has to exist. The CTE
 * `pause_held` keeps this connection from starting the tasks that are left.
 *
 * @param later SQL condition that is true if all of these tasks should be deferred
 */
export function pauseCtes({ qualified }: TaskTable, later: string): string {
  const pausing = `(SELECT hash, max(stop) AS since FROM ended WHERE max < 0 GROUP BY hash)`;
  const groups = `EXISTS (SELECT FROM ended WHERE max < 0) AND hash = ANY (ARRAY(SELECT hash FROM ended WHERE max < 0))`;
  return `pausable AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE ready AND max < 0 AND ${groups}
  UNION ALL SELECT id FROM ${qualified} WHERE NOT ready AND plan <= now() AND max < 0 AND ${groups}
), pausing AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM pausable)) AND ${due("")} AND NOT ${later}
    AND id <> ALL (ARRAY(SELECT waiting FROM key_waits))
  FOR NO KEY UPDATE SKIP LOCKED
), paused AS (
  UPDATE ${qualified} AS t SET plan = ${next}, ready = ${next} <= now()${keepPlace}
  FROM ${pausing} AS p WHERE t.hash = p.hash AND t.id = ANY (ARRAY(SELECT id FROM pausing))
), pause_left AS MATERIALIZED (
  SELECT t.id, p.since FROM ${qualified} AS t JOIN ${pausing} AS p ON p.hash = t.hash
  WHERE t.id = ANY (ARRAY(SELECT id FROM pausable EXCEPT ALL SELECT id FROM pausing))
), pause_held AS MATERIALIZED (
  SELECT set_config('${deferredSetting}', (${deferredArray} || ARRAY(SELECT id::bigint FROM pause_left))::text, false)
  WHERE EXISTS (SELECT FROM pause_left)
)`;
}

/** Replans tasks that could not be replanned when their group paused, and returns those whose rows are still locked. */
export async function retryPauses(
  client: Client,
  table: TaskTable,
  tasks: readonly DeferredPause[],
): Promise<DeferredPause[]> {
  const { rows } = await client.query<DeferredPause>({
    name: "pause later",
    text: laterStatement(table),
    values: [tasks.map(({ id }) => id), tasks.map(({ since }) => since)],
  });
  return rows;
}

/** Keeps this connection from starting these tasks, and only these. */
export async function setDeferred(client: Client, tasks: readonly DeferredPause[]): Promise<void> {
  await client.query("SELECT set_config($1, $2, false)", [deferredSetting, arrayLiteral(tasks.map(({ id }) => id))]);
}

function laterStatement(table: TaskTable): string {
  const { qualified } = table;
  return `
WITH wanted AS MATERIALIZED (
  SELECT t.id, p.since FROM unnest($1::bigint[], $2::timestamptz[]) AS p(id, since) JOIN ${qualified} AS t ON t.id = p.id
  WHERE t.id = ANY ($1::bigint[]) AND ${due("t.")}
), free AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT id FROM wanted)) AND ${due("t.")}
  FOR NO KEY UPDATE SKIP LOCKED
), paused AS (
  UPDATE ${qualified} AS t SET plan = ${next}, ready = ${next} <= now()${keepPlace}
  FROM wanted AS p WHERE t.id = p.id AND t.id = ANY (ARRAY(SELECT id FROM free))
)
SELECT id::text AS id, since::text FROM wanted WHERE id <> ALL (ARRAY(SELECT id FROM free))`;
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayOf } from "../../shared/postgres/arrayText.js";

/** A task whose row somebody had locked when its group paused: it is still to be planned anew. */
export interface PausedTask {
  readonly id: string;
  /** When the run before the pause stopped, as the database wrote it. */
  readonly since: string;
}

/** The manager's session remembers here what must not start though its plan says so. */
const setting = "pgtask.paused";
const remembered = `coalesce(nullif(current_setting('${setting}', true), ''), '{}')::bigint[]`;

/** SQL of an array of the tasks that a pause holds back though their plan says that they are due. */
export const heldBack = `ARRAY(SELECT unnest(${remembered}))`;

/** SQL of the plan after a pause; `p.since` is the stop of the run before it. */
const pause = `interval '1 ms' * abs(t.max::float8)`;
const passed = `extract(epoch FROM p.since - t.plan)::float8 * 1000 / abs(t.max::float8)`;
const next = `
    CASE WHEN t.drift OR NOT isfinite(t.plan) THEN p.since + ${pause} ELSE t.plan + ${pause} * greatest(0, floor(${passed}) + 1) END`;

/** SQL of what a pause is for: tasks with a negative `max` that would start otherwise. */
const due = (t: string): string =>
  `${t}ready IS NOT NULL AND ${t}plan <= now() AND ${t}max < 0 AND ${t}owner IS NULL`;

/**
 * SQL that plans anew, after runs whose `max` is negative, what is due in their groups with a
 * negative `max`: each by its own, in ms, from the stop with drift, else at the first of its plan
 * and plan + n × |max| after the stop. The part `pause_left` (columns id, since) has those whose
 * row somebody has locked, `pause_held` keeps this session from starting them.
 *
 * @param ended name of a part of the statement, with columns hash, max and stop.
 * @param later SQL of whether all of them are to be left.
 */
export function pauseParts({ qualified }: TaskTable, ended: string, later: string): string {
  const pausing = `(SELECT hash, max(stop) AS since FROM ${ended} WHERE max < 0 GROUP BY hash)`;
  const groups = `EXISTS (SELECT FROM ${ended} WHERE max < 0) AND hash = ANY (ARRAY(SELECT hash FROM ${ended} WHERE max < 0))`;
  return `pausable AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE ready AND max < 0 AND ${groups}
  UNION ALL SELECT id FROM ${qualified} WHERE NOT ready AND plan <= now() AND max < 0 AND ${groups}
), pausing AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM pausable)) AND ${due("")} AND NOT ${later}
  FOR NO KEY UPDATE SKIP LOCKED
), paused AS (
  UPDATE ${qualified} AS t SET plan = ${next}, ready = ${next} <= now()
  FROM ${pausing} AS p WHERE t.hash = p.hash AND t.id = ANY (ARRAY(SELECT id FROM pausing))
), pause_left AS MATERIALIZED (
  SELECT t.id, p.since FROM ${qualified} AS t JOIN ${pausing} AS p ON p.hash = t.hash
  WHERE t.id = ANY (ARRAY(SELECT id FROM pausable EXCEPT ALL SELECT id FROM pausing))
), pause_held AS MATERIALIZED (
  SELECT set_config('${setting}', (${remembered} || ARRAY(SELECT id::bigint FROM pause_left))::text, false)
  WHERE EXISTS (SELECT FROM pause_left)
)`;
}

/**
 * Plans anew what was left when its group paused.
 *
 * @returns those whose row somebody has locked.
 */
export async function pauseLater(
  client: Client,
  table: TaskTable,
  tasks: readonly PausedTask[],
): Promise<PausedTask[]> {
  const { rows } = await client.query<{ id: string | number; since: string }>({
    name: "pause later",
    text: laterStatement(table),
    values: [tasks.map(({ id }) => id), tasks.map(({ since }) => since)],
  });
  return rows.map((row) => ({ ...row, id: String(row.id) }));
}

/** Keeps this session from starting these, and no others, though their plan says that they are due. */
export async function holdBack(client: Client, tasks: readonly PausedTask[]): Promise<void> {
  await client.query("SELECT set_config($1, $2, false)", [
    setting,
    arrayOf(tasks.map(({ id }) => id)),
  ]);
}

function laterStatement({ qualified }: TaskTable): string {
  return `
WITH wanted AS MATERIALIZED (
  SELECT t.id, p.since FROM unnest($1::bigint[], $2::timestamptz[]) AS p(id, since) JOIN ${qualified} AS t ON t.id = p.id
  WHERE t.id = ANY ($1::bigint[]) AND ${due("t.")}
), free AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT id FROM wanted)) AND ${due("t.")}
  FOR NO KEY UPDATE SKIP LOCKED
), paused AS (
  UPDATE ${qualified} AS t SET plan = ${next}, ready = ${next} <= now()
  FROM wanted AS p WHERE t.id = p.id AND t.id = ANY (ARRAY(SELECT id FROM free))
)
SELECT id, since::text FROM wanted WHERE id <> ALL (ARRAY(SELECT id FROM free))`;
}

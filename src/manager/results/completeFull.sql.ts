import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import type { RunResult } from "../../shared/ipc/messages.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { byId } from "../sql/byId.js";
import { pauseParts, type PausedTask } from "../sql/pauseGroup.sql.js";
import { planRepeat } from "../sql/planRepeat.sql.js";
import { setByTask } from "./setByTask.sql.js";
import { nothingSpared, withNote, type Spared } from "./withoutRepeat.sql.js";

/** A result together with the session that the row has to name as its owner. */
export type OwnedResult = Extract<RunResult, { outcome: "ended" }> & {
  readonly owner: string;
  /** Hash of its group, where its end may pause that. */
  readonly pauses?: number | undefined;
  /** Whether it changes nothing but its own row, as far as one can tell. */
  readonly plain?: boolean;
};

/**
 * Writes results into their rows: DONE or FAIL, or deletes the row where it says so and there is
 * neither output nor error; before that, a task that repeats is planned again, and after a run with
 * a negative `max` its group pauses. Guarded by owner, so that a task which somebody else has by now
 * is left alone. A state that was changed while the task ran stays, and it does not repeat: PLAN offers
 * the task again, others keep what they say; what came out stands beside STOP and FAIL where nobody has
 * written anything else there. A STOP, FAIL or GONE of somebody else's that came after the effect was
 * committed was too late for this run: it is DONE, but does not repeat.
 *
 * @param results one with a large output has to come alone.
 * @param options.traced whether the states that were written are wanted.
 * @param options.spared what is not to be done beside the rows' own outcome.
 */
export async function completeFull(
  client: Client,
  table: TaskTable,
  shape: ColumnSet,
  results: readonly OwnedResult[],
  { traced = false, spared = nothingSpared }: { traced?: boolean; spared?: Spared } = {},
): Promise<Completion> {
  const large = largeOf(results);
  const { rows } = await client.query<{
    id: string | number;
    since: string | null;
    holds: boolean;
    state: string | null;
  }>({
    name: `complete ${traced ? "traced " : ""}${large === null ? "" : "large "}${shape.name}`,
    text: completeStatement(table, shape, { traced, large: large !== null }),
    values: [
      results.map((result) => result.id),
      results.map((result) => result.owner),
      results.map((result) => result.start),
      results.map((result) => result.stop),
      // As it is, in binary format: making text of it would take its size again and again.
      large ?? results.map((result) => result.output),
      results.map((result) => result.error),
      results.map((result) => result.committed),
      spared.pause,
      spared.repetition,
      spared.deletion,
    ],
  });
  return {
    later: new Set(
      rows.flatMap(({ id, since, state }) => (since === null && state === null ? String(id) : [])),
    ),
    paused: rows.flatMap(({ id, since }) => (since === null ? [] : { id: String(id), since })),
    outdated: rows.some((row) => !row.holds),
    states: new Map(rows.flatMap(({ id, state }) => (state === null ? [] : [[String(id), state]]))),
  };
}

function largeOf(results: readonly OwnedResult[]): Buffer | null {
  const [first] = results;
  if (first?.large === undefined) return null;
  if (results.length > 1) throw new PgTaskError("INTERNAL", "a large output was not alone");
  const { buffer, byteOffset, byteLength } = first.large;
  return Buffer.from(buffer, byteOffset, byteLength);
}

export interface Completion {
  /** Ids of tasks that are still ours and could not be written now, since somebody has their row locked. */
  readonly later: ReadonlySet<string>;
  /** Tasks to be planned anew by a pause, whose row somebody has locked. */
  readonly paused: readonly PausedTask[];
  /** The table has another shape by now: those that repeat are among the later ones. */
  readonly outdated: boolean;
  /** What the rows say that were written, by id; empty unless that is asked for. */
  readonly states: ReadonlyMap<string, string>;
}

/** What came out of a run that somebody else ended is told beside STOP and FAIL only; no error beside DONE and GONE. */
const told = "e.state IN ('STOP', 'FAIL') OR e.error IS NULL";

const statesWritten = `UNION ALL SELECT id, NULL, true,
  CASE WHEN NOT finished THEN state WHEN error IS NULL THEN 'DONE' ELSE 'FAIL' END FROM ended`;

/**
 * Each result finds its row by itself, one index lookup each: joined as sets, or looked up as lists,
 * a thousand of them would cost a million comparisons.
 *
 * A large output goes from its parameter to the row: every set it passed through would write it to disk.
 */
function completeStatement(
  table: TaskTable,
  shape: ColumnSet,
  { traced, large }: { readonly traced: boolean; readonly large: boolean },
): string {
  const { qualified, stateType } = table;
  const outputs = large ? "ARRAY['large']" : "$5::text[]";
  const output = large ? "$5::text" : "e.output";
  const holds = columnsUnchanged(table, shape);
  return `
WITH result AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], ${outputs}, $6::text[], $7::boolean[])
    AS r(id, owner, start, stop, output, error, committed)
), locked AS MATERIALIZED (
  SELECT r.*, l.* FROM result AS r CROSS JOIN LATERAL (
    SELECT delete, state::text AS state, hash, max, repeat > interval '0' AS repeats, ${setByTask} AS own FROM ${qualified} AS t
    WHERE t.id = r.id AND t.owner = r.owner AND (repeat = interval '0' OR ${holds})
    FOR UPDATE SKIP LOCKED
  ) AS l
), ended AS MATERIALIZED (
  SELECT id, owner, start, coalesce(stop, now()) AS stop, output, error, state, hash, max, repeats, own,
    state IN ('TAKE', 'WORK') OR (state IN ('STOP', 'FAIL', 'GONE') AND committed) AS finished,
    delete AND output IS NULL AND error IS NULL AND NOT $10::boolean AND NOT (repeats AND state IN ('TAKE', 'WORK') AND $9::text IS NOT NULL) AS deletable,
    CASE WHEN repeats AND state IN ('TAKE', 'WORK') THEN $9::text END AS unrepeated
  FROM locked
), done AS MATERIALIZED (
  SELECT id, stop FROM ended WHERE repeats AND state IN ('TAKE', 'WORK') AND $9::text IS NULL
), repeated AS (${planRepeat(table, shape, "done")}
), ${pauseParts(table, "ended", "$8::boolean")}, deleted AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE finished AND deletable))
), written AS (
  UPDATE ${qualified} AS t SET state = CASE WHEN e.error IS NULL THEN 'DONE' ELSE 'FAIL' END::${stateType},
    start = e.start, stop = e.stop, output = ${output}, error = ${withNote("e.error", "e.unrepeated")}, owner = NULL
  FROM ended AS e
  WHERE ${byId("e.id")} AND e.finished AND NOT e.deletable
), kept AS (
  UPDATE ${qualified} AS t SET owner = NULL, pid = abs(t.pid), start = e.start, stop = coalesce(t.stop, e.stop),
    output = CASE WHEN e.own THEN ${output} WHEN ${told} THEN coalesce(t.output, ${output}) ELSE t.output END,
    error = CASE WHEN e.own THEN e.error WHEN ${told} THEN coalesce(t.error, e.error) ELSE t.error END
  FROM ended AS e
  WHERE ${byId("e.id")} AND t.id = ANY (ARRAY(SELECT id FROM ended WHERE NOT finished AND state <> 'PLAN'))
), replanned AS (
  UPDATE ${qualified} SET owner = NULL, pid = NULL, take = NULL, start = NULL, ready = plan <= now()
  WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE state = 'PLAN'))
)
SELECT r.id, NULL AS since, ${holds} AS holds, NULL AS state FROM result AS r
WHERE (r.id IN (SELECT id FROM locked)) IS NOT TRUE
  AND EXISTS (SELECT FROM ${qualified} AS t WHERE ${byId("r.id")} AND t.owner = r.owner)
UNION ALL SELECT l.id, l.since::text, true, NULL FROM pause_left AS l LEFT JOIN pause_held AS h ON h IS NULL
${traced ? statesWritten : ""}`;
}

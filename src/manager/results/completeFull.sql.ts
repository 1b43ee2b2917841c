import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import type { OwnedResult } from "../model/tasks.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { RetryPolicy } from "../model/settings.js";
import { pauseCtes, type DeferredPause } from "../sql/pauseGroup.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { countedGroup, countFailures } from "../sql/groupFailures.sql.js";
import { isReplaced, keyWaits, replacedError, waitingWithKey } from "../sql/keyWaits.sql.js";
import { noOmissions, appendNote, owedCte, type Omissions } from "../sql/omissions.js";
import { tellEnds } from "../sql/tellEnds.sql.js";
import { planFromRule } from "../sql/ruleQuery.sql.js";
import { isRetried, planRetries } from "./retry.sql.js";
import { hasId, isAwaited, isRepeating, isSeen, isSetByTask } from "../sql/fragments.sql.js";
import { mustRunQuery } from "../schema/startRule.sql.js";

export interface Completion {
  /** Results not written because their rows are locked, or repeat and were changed after the statement had begun. */
  readonly lockedIds: ReadonlySet<string>;
  /** Tasks that should be postponed by their group's pause, but whose rows are locked. */
  readonly deferredPauses: readonly DeferredPause[];
  /** Whether the table's columns have changed. If so, `lockedIds` also contains the results of repeating tasks. */
  readonly columnsChanged: boolean;
  /** The states of the written rows, by id. Empty if runs are not traced. */
  readonly states: ReadonlyMap<string, string>;
  readonly awaitedIds: readonly string[];
  /** SQLSTATEs of the errors after which tasks are retried, one for each of these tasks. */
  readonly retried: readonly string[];
  /** Tasks whose schedules have ended because the query of the rule failed or returned no valid time. */
  readonly failedRules: readonly { readonly id: string; readonly reason: string }[];
}

/**
 * Writes results to their rows: sets the state to DONE or FAIL, or deletes the row if the task has `delete` and there
 * is neither output nor error. A task whose error is worth a retry goes back to PLAN. If the task repeats, its successor
 * is inserted. After a task with a negative `max`, its group is paused. A task that has another owner by now is left
 * alone.
 *
 * If another client has set another state while the task ran, that state stays and the task does not repeat. A task
 * that was set to PLAN runs again, unless another task waits with the same key: then it becomes GONE. Output and error
 * are added to a row in state STOP or FAIL unless something else was written there. If another client set STOP, FAIL or
 * GONE after the effect was committed, it was too late: the task becomes DONE, but does not repeat.
 *
 * @param results if one result has a large output, it must be the only result
 * @param options.retry which errors are retried, unless the row says so itself
 * @param options.traced whether to return the states that were written
 */
export async function completeFull(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  results: readonly OwnedResult[],
  { retry, traced = false, omissions = noOmissions }: CompletionOptions,
): Promise<Completion> {
  const large = largeOutputOf(results);
  const { rows } = await client.query<CompletionRow>({
    name: `complete ${traced ? "traced " : ""}${large === null ? "" : "large "}${omissions.repetition === null ? "" : "owed "}${columns.name}`,
    text: completeStatement(table, columns, { traced, large: large !== null, repetition: omissions.repetition }),
    values: [
      results.map((result) => result.id),
      results.map((result) => result.owner),
      results.map((result) => result.start),
      results.map((result) => result.stop),
      // A large output is sent in binary format, because converting it to text would take several times its size in
      // memory.
      large ?? results.map((result) => result.output),
      results.map((result) => result.error),
      results.map((result) => result.committed),
      omissions.pause,
      omissions.repetition,
      omissions.deletion,
      results.map((result) => result.sqlstate),
      omissions.retry,
      retry.sqlstates,
      retry.ceilingMs / 1000,
    ],
  });
  return {
    lockedIds: new Set(rows.flatMap((row) => (isLocked(row) ? String(row.id) : []))),
    deferredPauses: rows.flatMap(({ id, since }) => (since === null ? [] : { id: String(id), since })),
    columnsChanged: rows.some((row) => !row.holds),
    awaitedIds: rows.flatMap(({ id, awaited }) => (awaited ? String(id) : [])),
    retried: rows.flatMap(({ retried }) => retried ?? []),
    failedRules: rows.flatMap(({ id, reason }) => (reason === null ? [] : { id: String(id), reason })),
    states: new Map(rows.flatMap(({ id, state }) => (state === null ? [] : [[String(id), state]]))),
  };
}

/** A row that says one thing about a result, by the property that is set. If none is, the task's row is locked. */
interface CompletionRow {
  readonly id: string | number;
  /** Stop time of a run after which the task should be postponed by its group's pause. */
  readonly since: string | null;
  readonly holds: boolean;
  readonly state: string | null;
  readonly retried: string | null;
  readonly awaited: boolean;
  /** Why the query of the task's rule has ended its schedule. */
  readonly reason: string | null;
}

const isLocked = ({ since, state, retried, awaited, reason }: CompletionRow): boolean =>
  (since ?? state ?? retried ?? reason) === null && !awaited;

interface CompletionOptions {
  readonly retry: RetryPolicy;
  readonly traced?: boolean;
  readonly omissions?: Omissions;
}

function largeOutputOf(results: readonly OwnedResult[]): Buffer | null {
  const [first] = results;
  if (first?.largeOutput === undefined) return null;
  if (results.length > 1) throw new PgTaskError("INTERNAL", "a large output was not alone");
  const { buffer, byteOffset, byteLength } = first.largeOutput;
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** SQL: whether to write output and error although others have set the state. For DONE and GONE only without error. */
const isOutcomeShown = "e.state IN ('STOP', 'FAIL') OR e.error IS NULL";

/** SQL of the error of a task that is not retried, because another one that waits with its key will do the same. */
const withReplacement = `CASE WHEN replacement IS NULL THEN error
      ELSE concat(error, E'\\nDETAIL:  Task ', replacement, ' with the same key takes its place.') END`;

const writtenStates = `UNION ALL SELECT id, NULL, true,
  CASE WHEN retried THEN 'PLAN' WHEN NOT finished THEN state WHEN error IS NULL THEN 'DONE' ELSE 'FAIL' END, NULL, false, NULL FROM ended`;

/**
 * SQL of the ids of `ended` that would have got a successor, passed their schedule on, or been planned by their query.
 */
const owedIds = (table: TaskTable): string => `SELECT e.id FROM ended AS e JOIN ${table.qualified} AS t ON t.id = e.id
  WHERE t.id = ANY (ARRAY(SELECT id FROM ended)) AND ${isRepeating("t.")}
    AND (e.computes OR e.repeats AND e.state IN ('TAKE', 'WORK') OR e.state = 'PLAN' AND ${isReplaced("e.id")})`;

/** SQL of the ends that this statement writes. Whoever sets another state tells that (the function `ready`). */
const told = `SELECT id, stop, tell, CASE WHEN error IS NULL THEN 'DONE' ELSE 'FAIL' END AS outcome FROM ended WHERE finished
    UNION ALL SELECT id, stop, tell, 'GONE' FROM replaced UNION ALL SELECT id, stop, tell, state::text FROM failed_queries`;

/**
 * Returns the SQL of `completeFull`. Its lateral join makes one index lookup for each result. Joining sets, or looking
 * ids up in arrays, would cost a million comparisons for a thousand results.
 *
 * A large output goes straight from its parameter to the row. If it passed through CTEs, each CTE would write it to
 * disk.
 */
function completeStatement(
  table: TaskTable,
  columns: ColumnSet,
  {
    traced,
    large,
    repetition,
  }: { readonly traced: boolean; readonly large: boolean; readonly repetition: string | null },
): string {
  const { qualified, stateType } = table;
  const outputs = large ? "ARRAY['large']" : "$5::text[]";
  const output = large ? "$5::text" : "e.output";
  const holds = columnsUnchanged(table, columns);
  return `
WITH result AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], ${outputs}, $6::text[], $7::boolean[], $11::text[])
    AS r(id, owner, start, stop, output, error, committed, sqlstate)
), locked AS MATERIALIZED (
  SELECT r.owner, r.start, r.stop, r.output, r.error, r.committed, r.sqlstate, l.* FROM result AS r CROSS JOIN LATERAL (
    SELECT t.id, t.ctid AS version, delete, state::text AS state, hash, max, ${isRepeating()} AS repeats, ${mustRunQuery()} AS computing, ${isSetByTask} AS own,
      ${isRetried("$13::text[]")} AS retriable, CASE WHEN ${isRetried("$13::text[]")} THEN ${waitingWithKey(table)} END AS replacement,
      ${isAwaited} AS awaited, t.suspend, t.tell, ${countedGroup(table)} AS counted FROM ${qualified} AS t
    WHERE t.id = r.id AND t.owner = r.owner AND (NOT ${isRepeating()} OR ${holds})
    FOR UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.repeats OR ${isSeen(table)}
), ended AS MATERIALIZED (
  SELECT id, owner, start, coalesce(stop, now()) AS stop, output, CASE WHEN computing THEN error ELSE ${withReplacement} END AS error, state, hash, CASE WHEN NOT computing THEN max END AS max,
    repeats AND NOT computing AND NOT retried AS repeats, computing, own, retried, sqlstate, awaited, computes,
    (state IN ('TAKE', 'WORK') AND NOT retried AND NOT computes) OR (state IN ('STOP', 'FAIL', 'GONE') AND committed) AS finished,
    delete AND NOT computing AND output IS NULL AND error IS NULL AND NOT awaited AND NOT $10::boolean AND NOT (repeats AND state IN ('TAKE', 'WORK') AND $9::text IS NOT NULL) AS deletable,
    suspend, tell, counted, CASE WHEN (repeats OR retriable) AND NOT computing AND state IN ('TAKE', 'WORK') THEN $9::text END AS unrepeated
  FROM (
    SELECT *, retriable AND replacement IS NULL AND NOT $12::boolean AS retried, computing AND state IN ('TAKE', 'WORK') AND error IS NULL AS computes FROM locked
  ) AS l
), key_waits AS MATERIALIZED (${keyWaits(table, "SELECT id FROM ended WHERE repeats OR computes OR state = 'PLAN'")}
), ${planFromRule(table, "$9")}done AS MATERIALIZED (
  SELECT id, stop, CASE WHEN error IS NULL THEN 'DONE' ELSE 'FAIL' END AS outcome FROM ended WHERE repeats AND state IN ('TAKE', 'WORK') AND $9::text IS NULL
  UNION ALL SELECT id, stop, 'GONE' FROM ended WHERE state = 'PLAN' AND ${isReplaced("id")} AND $9::text IS NULL
  UNION ALL SELECT id, stop, 'GONE' FROM answers WHERE verdict = 'replaced'
), ${successorCtes(table, columns, "done", true)}, ${pauseCtes(table, "$8::boolean")}, ${planRetries(table, output, "$14")}deleted AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE finished AND deletable))
), written AS (
  UPDATE ${qualified} AS t SET state = CASE WHEN e.error IS NULL THEN 'DONE' ELSE 'FAIL' END::${stateType},
    start = e.start, stop = e.stop, output = ${output}, error = ${appendNote("e.error", "e.unrepeated")}, owner = NULL
  FROM ended AS e
  WHERE ${hasId("e.id")} AND e.finished AND NOT e.deletable
), kept AS (
  UPDATE ${qualified} AS t SET owner = NULL, pid = abs(t.pid), start = e.start, stop = coalesce(t.stop, e.stop),
    output = CASE WHEN e.own THEN ${output} WHEN ${isOutcomeShown} THEN coalesce(t.output, ${output}) ELSE t.output END,
    error = CASE WHEN e.own THEN e.error WHEN ${isOutcomeShown} THEN coalesce(t.error, e.error) ELSE t.error END
  FROM ended AS e
  WHERE ${hasId("e.id")} AND t.id = ANY (ARRAY(SELECT id FROM ended WHERE NOT finished AND NOT computes AND NOT retried AND state <> 'PLAN'))
), replanned AS (
  UPDATE ${qualified} SET owner = NULL, pid = NULL, take = NULL, start = NULL, ready = plan <= now()
  WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE state = 'PLAN' AND NOT ${isReplaced("id")}))
), replaced AS (
  UPDATE ${qualified} AS t SET state = 'GONE'::${stateType}, owner = NULL, start = e.start, stop = e.stop,
    error = ${appendNote(replacedError("k.waiting"), `CASE WHEN ${isRepeating("t.")} THEN $9::text END`)}
  FROM key_waits AS k JOIN ended AS e ON e.id = k.id WHERE ${hasId("k.id")} AND (e.state = 'PLAN' OR e.computes AND $9::text IS NOT NULL)
  RETURNING t.id, t.stop, t.tell
)${owedCte(table, repetition, owedIds(table))}
SELECT r.id, NULL AS since, ${holds} AS holds, NULL AS state, NULL AS retried, false AS awaited, NULL AS reason FROM result AS r
WHERE (r.id IN (SELECT id FROM locked)) IS NOT TRUE
  AND EXISTS (SELECT FROM ${qualified} AS t WHERE ${hasId("r.id")} AND t.owner = r.owner)
UNION ALL SELECT l.id, l.since::text, true, NULL, NULL, false, NULL FROM pause_left AS l LEFT JOIN pause_held AS h ON h IS NULL
UNION ALL SELECT id, NULL, true, NULL, sqlstate, false, NULL FROM ended WHERE retried
UNION ALL SELECT id, NULL, true, NULL, NULL, true, NULL FROM ended WHERE awaited AND state <> 'PLAN' AND NOT retried AND NOT computes
UNION ALL SELECT id, NULL, true, NULL, NULL, false, NULL
  FROM (${countFailures(table, "SELECT id, stop, error IS NOT NULL AS failed, suspend, tell, counted FROM ended WHERE finished AND NOT computing")}) AS n
UNION ALL SELECT id, NULL, true, NULL, NULL, false, NULL FROM (${tellEnds(told)}) AS n
UNION ALL SELECT id, NULL, true, NULL, NULL, false, split_part(error, E'\\n', 1) FROM (
  SELECT id, error FROM ended WHERE computing AND NOT computes AND finished AND error IS NOT NULL
  UNION ALL SELECT id, error FROM failed_queries WHERE state::text = 'FAIL') AS f
${traced ? writtenStates : ""}`;
}

import type { Client } from "../../shared/postgres/client.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { RescueOutcome } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";
import { pauseCtes, type DeferredPause } from "../sql/pauseGroup.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { countedGroup, countFailures } from "../sql/groupFailures.sql.js";
import { tellEnds } from "../sql/tellEnds.sql.js";
import { isReplaced, keyOf, keyWaits, replacedError } from "../sql/keyWaits.sql.js";
import { noOmissions, appendNote, owedCte, type Omissions } from "../sql/omissions.js";
import { claimTime, isRepeating, isSeen } from "../sql/fragments.sql.js";
import { mustRunQuery } from "../schema/startRule.sql.js";

export interface OwnedRow {
  readonly id: string;
  readonly owner: string;
  readonly hash: number;
  readonly key?: string | null;
}

/** Reads the claimed tasks, whoever claimed them: those among `ids`, or all, for which it scans the whole table. */
export async function readClaimedRows(
  client: Client,
  table: TaskTable,
  ids: readonly string[] | null,
): Promise<OwnedRow[]> {
  const condition = ids === null ? "" : "id = ANY ($1::bigint[]) AND ";
  const { rows } = await client.query<OwnedRow>({
    name: ids === null ? "owned rows" : "still owned",
    text: `SELECT id::text AS id, owner, hash, ${keyOf(table)} AS key FROM ${table.qualified} WHERE ${condition}owner IS NOT NULL`,
    values: ids === null ? [] : [ids],
  });
  return rows;
}

export interface RescuedTask {
  readonly id: string;
  readonly verdict: RescueOutcome;
  /** How many sessions the task has ended so far. */
  readonly crash: number;
}

/**
 * Rescues the tasks among `ids` that still belong to a dead owner. A task with a proof (a ledger row committed together
 * with its effect) becomes DONE, with everything else that follows a run. But its row is never deleted, because its
 * output is unknown. A task without a proof returns to PLAN, or becomes GONE if another task waits with its key.
 *
 * With `blame` (the task's own run ended its session, while pg-task and the server kept running), the crash is counted.
 * After `crashes` crashes, the task becomes FAIL, and if it repeats, its successor is inserted. Locked rows are skipped,
 * and repeating tasks if they have just been changed or the table's columns differ from `columns`.
 *
 * @param request.committed tasks that have proofs on other servers
 * @param request.reasons why the tasks' sessions ended, by id, for the errors of those that become FAIL
 */
export async function rescueTasks(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  request: {
    readonly dead: readonly string[];
    readonly ids: readonly string[];
    readonly committed?: readonly string[];
    readonly blame: boolean;
    readonly crashes: number;
    readonly reasons?: Readonly<Record<string, string>>;
    readonly omissions?: Pick<Omissions, "pause" | "repetition">;
  },
): Promise<{
  readonly rescued: readonly RescuedTask[];
  readonly paused: readonly DeferredPause[];
}> {
  const omissions = request.omissions ?? noOmissions;
  const { rows } = await client.query<{
    id: string | number;
    verdict: RescueOutcome;
    crash: number;
    since: string | null;
  }>({
    name: `rescue ${omissions.repetition === null ? "" : "owed "}${columns.name}`,
    text: rescueStatement(table, columns, omissions.repetition),
    values: [
      request.dead,
      request.ids,
      request.blame ? 1 : 0,
      request.crashes,
      omissions.pause,
      omissions.repetition,
      JSON.stringify(request.reasons ?? {}),
      request.committed ?? [],
    ],
  });
  return {
    rescued: rows.flatMap(({ id, verdict, crash, since }) =>
      since === null ? { id: String(id), verdict, crash } : [],
    ),
    paused: rows.flatMap(({ id, since }) => (since === null ? [] : { id: String(id), since })),
  };
}

/** SQL condition that is true if the schedule of the row `j` of `judged` goes on with another row. */
const passesOn =
  "(j.scheduled AND j.verdict = 'replaced' OR j.repeats AND j.verdict IN ('done', 'failed') AND j.state IN ('TAKE', 'WORK'))";

/**
 * Returns the SQL of `rescueTasks`. `IS TRUE` keeps the planner from turning the lookup in the ledgers into a join.
 * Instead, the planner hashes the subquery once.
 */
function rescueStatement(table: TaskTable, columns: ColumnSet, repetition: string | null): string {
  const { qualified, stateType, qualifiedLedger1, qualifiedLedger2 } = table;
  return `
WITH lost AS MATERIALIZED (
  SELECT l.* FROM (
    SELECT id, ctid AS version, state::text AS state, hash, max, ${isRepeating()} AS scheduled, ${isRepeating()} AND NOT ${mustRunQuery()} AS repeats,
      crash + $3::integer AS crash, suspend, tell, ${countedGroup(table)} AS counted, ${claimTime("t")} AS taken
    FROM ${qualified} AS t WHERE id = ANY ($2::bigint[]) AND owner = ANY ($1::text[])
      AND (NOT ${isRepeating()} OR ${columnsUnchanged(table, columns)})
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.scheduled OR ${isSeen(table)}
), proof AS MATERIALIZED (
  SELECT id, bool_or(running) AS running, max(start) AS start, max(stop) AS stop
  FROM (
    SELECT id, take, running, start, stop, place FROM ${qualifiedLedger1}
    UNION ALL SELECT id, take, running, start, stop, place FROM ${qualifiedLedger2}
    UNION ALL SELECT id, taken, true, NULL, NULL, NULL FROM lost WHERE id = ANY ($8::bigint[])
  ) AS p
  WHERE place IS NULL AND ((id, take) IN (SELECT id, taken FROM lost)) IS TRUE GROUP BY id
), key_waits AS MATERIALIZED (${keyWaits(table, "SELECT id FROM lost")}
), judged AS MATERIALIZED (
  SELECT l.id, l.state, l.hash, l.max, l.scheduled, l.repeats, l.crash, l.suspend, l.tell, l.counted, p.start, coalesce(p.stop, now()) AS stop,
    CASE WHEN p.id IS NOT NULL AND (l.state IN ('TAKE', 'WORK') OR (l.state IN ('STOP', 'FAIL', 'GONE') AND p.running)) THEN 'done'
      WHEN l.state = 'WORK' AND $3::integer > 0 AND l.crash >= $4::integer THEN 'failed'
      WHEN l.state IN ('TAKE', 'WORK', 'PLAN') THEN CASE WHEN ${isReplaced("l.id")} THEN 'replaced' ELSE 'planned' END ELSE 'kept' END AS verdict
  FROM lost AS l LEFT JOIN proof AS p ON p.id = l.id
), ended AS (
  SELECT id, stop, state, hash, max, CASE verdict WHEN 'done' THEN 'DONE' ELSE 'FAIL' END AS outcome FROM judged WHERE verdict IN ('done', 'failed')
), again AS (
  SELECT id, stop, outcome FROM ended WHERE state IN ('TAKE', 'WORK') AND $6::text IS NULL
  UNION ALL SELECT id, stop, 'GONE' FROM judged WHERE verdict = 'replaced' AND $6::text IS NULL
), ${successorCtes(table, columns, "again", true)}, ${pauseCtes(table, "$5::boolean")}, settled AS (
  UPDATE ${qualified} AS t SET owner = NULL,
    crash = CASE WHEN j.state = 'WORK' AND j.verdict <> 'done' THEN j.crash ELSE t.crash END,
    state = CASE j.verdict WHEN 'done' THEN 'DONE' WHEN 'failed' THEN 'FAIL' WHEN 'planned' THEN 'PLAN' WHEN 'replaced' THEN 'GONE' ELSE j.state END::${stateType},
    pid = CASE WHEN j.verdict <> 'planned' THEN abs(t.pid) END,
    take = CASE WHEN j.verdict <> 'planned' THEN t.take END,
    start = CASE WHEN j.verdict = 'done' THEN coalesce(j.start, t.start, t.take) WHEN j.verdict <> 'planned' THEN t.start END,
    stop = CASE WHEN j.verdict IN ('done', 'failed', 'replaced') THEN j.stop ELSE t.stop END,
    error = ${appendNote(
      "CASE WHEN j.verdict = 'failed' THEN concat('ERROR:  task took its own session down ', j.crash, ' times', ': ' || ($7::json ->> j.id::text)) " +
        `WHEN j.verdict = 'replaced' THEN ${replacedError("(SELECT k.waiting FROM key_waits AS k WHERE k.id = j.id)")} ELSE t.error END`,
      `CASE WHEN ${passesOn} THEN $6::text END`,
    )},
    output = CASE WHEN j.verdict = 'failed' THEN '' ELSE t.output END,
    ready = CASE WHEN j.verdict = 'planned' THEN t.plan <= now() END
  FROM judged AS j WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged))
  RETURNING t.id
)${owedCte(table, repetition, `SELECT j.id FROM judged AS j WHERE ${passesOn} AND j.id = ANY (ARRAY(SELECT id FROM settled))`)}
SELECT id, verdict, crash, NULL AS since FROM judged WHERE id = ANY (ARRAY(SELECT id FROM settled))
UNION ALL SELECT id, NULL, NULL, NULL FROM (${countFailures(table, "SELECT id, stop, verdict = 'failed' AS failed, suspend, tell, counted FROM judged WHERE verdict IN ('done', 'failed')")}) AS n
UNION ALL SELECT id, NULL, NULL, NULL FROM (${tellEnds(`SELECT id, stop, tell, CASE verdict WHEN 'done' THEN 'DONE' WHEN 'failed' THEN 'FAIL' ELSE 'GONE' END AS outcome FROM judged WHERE verdict IN ('done', 'failed', 'replaced')`)}) AS n
UNION ALL SELECT l.id, NULL, NULL, l.since::text FROM pause_left AS l LEFT JOIN pause_held AS h ON h IS NULL`;
}

import type { Client } from "../../shared/postgres/client.js";
import { ownerSql } from "../../shared/postgres/backendIdentity.js";
import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { pauseParts, type PausedTask } from "../sql/pauseGroup.sql.js";
import { planRepeat } from "../sql/planRepeat.sql.js";
import { nothingSpared, withNote, type Spared } from "../results/withoutRepeat.sql.js";
import { takenAt } from "../sql/takenAt.js";

/** A task that some session has. */
export interface OwnedRow {
  readonly id: string;
  readonly owner: string;
  readonly hash: number;
}

/** An id is a number where the table's own column is an integer. */
type FoundRow = Omit<OwnedRow, "id"> & { readonly id: string | number };

const asOwned = (rows: readonly FoundRow[]): OwnedRow[] =>
  rows.map((row) => ({ ...row, id: String(row.id) }));

/** Every task that some session has, whoever started it. Reads the whole table. */
export async function ownedRows(client: Client, table: TaskTable): Promise<OwnedRow[]> {
  const { rows } = await client.query<FoundRow>({
    name: "owned rows",
    text: `SELECT id, owner, hash FROM ${table.qualified} WHERE owner IS NOT NULL`,
  });
  return asOwned(rows);
}

/** Those of `ids` that still name an owner. */
export async function stillOwned(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<OwnedRow[]> {
  const { rows } = await client.query<FoundRow>({
    name: "still owned",
    text: `SELECT id, owner, hash FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) AND owner IS NOT NULL`,
    values: [ids],
  });
  return asOwned(rows);
}

/**
 * Those of `named` whose server process is gone. One that is there but whose start may not be seen
 * counts as alive. This must be a statement of its own: the list of server processes is not of the
 * statement's snapshot, and read together with rows it would take a run that committed in between
 * for a dead one.
 */
export async function deadOwners(client: Client, named: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ owner: string }>({
    name: "dead owners",
    text: `
SELECT o.owner FROM unnest($1::text[]) AS o(owner)
WHERE NOT EXISTS (
  SELECT FROM pg_stat_activity AS a
  WHERE a.pid::text = split_part(o.owner, ' ', 1)
    AND (a.backend_start IS NULL OR ${ownerSql("a")} = o.owner))`,
    values: [named],
  });
  return rows.map((row) => row.owner);
}

/** Ends the server processes of these, as far as they are of our own role. */
export async function endOwners(client: Client, named: readonly string[]): Promise<void> {
  await client.query({
    name: "end owners",
    text: `
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
WHERE ${ownerSql("a")} = ANY ($1::text[]) AND a.usename = current_user`,
    values: [named],
  });
}

/** What became of a task whose session died. */
export interface Rescued {
  readonly id: string;
  /**
   * `done`: its effect was committed. `failed`: it took its own session down too often. `planned`: it
   * runs again. `kept`: somebody else had changed its state, which stays.
   */
  readonly verdict: "done" | "failed" | "planned" | "kept";
  /** Deaths that it was the reason of, so far. */
  readonly crash: number;
}

/**
 * Settles those of `ids` that dead owners have. One whose effect is in a ledger has run: it is DONE,
 * with all that comes after a run, but its row stays, since nobody knows its output. Others return to
 * PLAN. With `blame`, for a task whose own run took its session down while process and server lived
 * on: that is counted, and after `crashes` of them the task ends as FAIL, and one that repeats is
 * planned again. Rows that somebody has locked are passed over.
 *
 * @param request.spared what is not to be done beside the rows' own outcome.
 */
export async function rescue(
  client: Client,
  table: TaskTable,
  shape: ColumnSet,
  request: {
    readonly dead: readonly string[];
    readonly ids: readonly string[];
    readonly blame: boolean;
    readonly crashes: number;
    readonly spared?: Omit<Spared, "deletion">;
  },
): Promise<{ readonly rescued: readonly Rescued[]; readonly paused: readonly PausedTask[] }> {
  const spared = request.spared ?? nothingSpared;
  const { rows } = await client.query<{
    id: string | number;
    verdict: Rescued["verdict"];
    crash: number;
    since: string | null;
  }>({
    name: `rescue ${shape.name}`,
    text: rescueStatement(table, shape),
    values: [
      request.dead,
      request.ids,
      request.blame ? 1 : 0,
      request.crashes,
      spared.pause,
      spared.repetition,
    ],
  });
  return {
    rescued: rows.flatMap(({ id, verdict, crash, since }) =>
      since === null ? { id: String(id), verdict, crash } : [],
    ),
    paused: rows.flatMap(({ id, since }) => (since === null ? [] : { id: String(id), since })),
  };
}

/**
 * The ledgers' lines are looked up as a set that is made once: the planner must not make a join of it,
 * hence IS TRUE.
 */
function rescueStatement(table: TaskTable, shape: ColumnSet): string {
  const { qualified, stateType, qualifiedLedger1, qualifiedLedger2 } = table;
  return `
WITH lost AS MATERIALIZED (
  SELECT id, state::text AS state, hash, max, repeat > interval '0' AS repeats, crash + $3::integer AS crash, ${takenAt("t")} AS taken
  FROM ${qualified} AS t WHERE id = ANY ($2::bigint[]) AND owner = ANY ($1::text[])
  FOR NO KEY UPDATE SKIP LOCKED
), proof AS MATERIALIZED (
  SELECT id, bool_or(running) AS running, max(start) AS start, max(stop) AS stop
  FROM (SELECT * FROM ${qualifiedLedger1} UNION ALL SELECT * FROM ${qualifiedLedger2}) AS p
  WHERE place IS NULL AND ((id, take) IN (SELECT id, taken FROM lost)) IS TRUE GROUP BY id
), judged AS MATERIALIZED (
  SELECT l.id, l.state, l.hash, l.max, l.repeats, l.crash, p.start, coalesce(p.stop, now()) AS stop,
    CASE WHEN p.id IS NOT NULL AND (l.state IN ('TAKE', 'WORK') OR (l.state IN ('STOP', 'FAIL', 'GONE') AND p.running)) THEN 'done'
      WHEN l.state = 'WORK' AND $3::integer > 0 AND l.crash >= $4::integer THEN 'failed'
      WHEN l.state IN ('TAKE', 'WORK', 'PLAN') THEN 'planned' ELSE 'kept' END AS verdict
  FROM lost AS l LEFT JOIN proof AS p ON p.id = l.id
), ended AS (
  SELECT id, stop, state, hash, max FROM judged WHERE verdict IN ('done', 'failed')
), again AS (
  SELECT id, stop FROM ended WHERE state IN ('TAKE', 'WORK') AND $6::text IS NULL
), repeated AS (${planRepeat(table, shape, "again")}
), ${pauseParts(table, "ended", "$5::boolean")}, settled AS (
  UPDATE ${qualified} AS t SET owner = NULL,
    crash = CASE WHEN j.state = 'WORK' AND j.verdict <> 'done' THEN j.crash ELSE t.crash END,
    state = CASE j.verdict WHEN 'done' THEN 'DONE' WHEN 'failed' THEN 'FAIL' WHEN 'planned' THEN 'PLAN' ELSE j.state END::${stateType},
    pid = CASE WHEN j.verdict <> 'planned' THEN abs(t.pid) END,
    take = CASE WHEN j.verdict <> 'planned' THEN t.take END,
    start = CASE WHEN j.verdict = 'done' THEN coalesce(j.start, t.start, t.take) WHEN j.verdict <> 'planned' THEN t.start END,
    stop = CASE WHEN j.verdict IN ('done', 'failed') THEN j.stop ELSE t.stop END,
    error = ${withNote(
      "CASE WHEN j.verdict = 'failed' THEN concat('ERROR:  task took its own session down ', j.crash, ' times') ELSE t.error END",
      "CASE WHEN j.repeats AND j.verdict IN ('done', 'failed') AND j.state IN ('TAKE', 'WORK') THEN $6::text END",
    )},
    output = CASE WHEN j.verdict = 'failed' THEN '' ELSE t.output END,
    ready = CASE WHEN j.verdict = 'planned' THEN t.plan <= now() END
  FROM judged AS j WHERE t.id = j.id AND t.id = ANY (ARRAY(SELECT id FROM judged))
  RETURNING t.id
)
SELECT id, verdict, crash, NULL AS since FROM judged WHERE id = ANY (ARRAY(SELECT id FROM settled))
UNION ALL SELECT l.id, NULL, NULL, l.since::text FROM pause_left AS l LEFT JOIN pause_held AS h ON h IS NULL`;
}

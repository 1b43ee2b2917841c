import { queryOne, queryValue } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { taskStates, type TaskState } from "../../shared/taskState.js";
import { dueOrderSql, isDueSql, isPlannedSql, isoTimeSql, millisecondsSql } from "../sqlFragments.js";
import { atLeast, estimated, exactly, sumOf, unknownCount, type Count } from "../../shared/count.js";

/** In pages; with pages of 8 kB, this is 32 MB. The rows of larger tables are estimated. */
const maxCountedPages = 4096;

export interface RowCounts {
  readonly rows: Count;
  readonly states: Readonly<Record<TaskState, Count>>;
  /** When the server gathered the statistics by which states are estimated; null if they are not. */
  readonly analyzedAt: string | null;
}

/** In a large table, the backlog's indexes give the tasks in PLAN, and the server's statistics the others, if it has any. */
export async function readRowCounts(
  client: Queryable,
  table: TaskTable,
  { due, planned }: { readonly due: Count; readonly planned: Count },
): Promise<RowCounts> {
  if (await isCountable(client, table)) return await countRows(client, table);
  const estimates = await estimateCounts(client, table);
  return { ...estimates, states: { ...estimates.states, PLAN: sumOf(due, planned) } };
}

/** Whether the table with its partitions is so small that all rows can be counted. */
export const isCountable = async (client: Queryable, { qualified }: TaskTable): Promise<boolean> =>
  await queryValue(
    client,
    `SELECT coalesce(sum(pg_relation_size(part)), 0) / current_setting('block_size')::int <= ${maxCountedPages} AS few
     FROM (SELECT $1::regclass AS part UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );

async function countRows(client: Queryable, { qualified }: TaskTable): Promise<RowCounts> {
  const { rows } = await client.query<{ state: TaskState; rows: number }>(
    `SELECT state::text AS state, count(*)::float8 AS rows FROM ${qualified} GROUP BY 1`,
  );
  const numbers = new Map(rows.map((row) => [row.state, row.rows]));
  return {
    rows: exactly(rows.reduce((sum, row) => sum + row.rows, 0)),
    states: perState((state) => exactly(numbers.get(state) ?? 0)),
    analyzedAt: null,
  };
}

async function estimateCounts(client: Queryable, table: TaskTable): Promise<RowCounts> {
  const { rows, shares, analyzedAt } = await readStatistics(client, table, "state");
  return { rows, states: perState((state) => shareOf(rows, shares, state)), analyzedAt };
}

function shareOf({ value: rows }: Count, shares: ReadonlyMap<string, number>, value: string, least = 0): Count {
  const share = shares.get(value);
  return rows === null || share === undefined ? atLeast(least) : estimated(rows * share, least);
}

/**
 * How many rows there are, as the server's counters or its last ANALYZE say, and which share of them has each value of a
 * column. There are no shares without an ANALYZE, or if more than half as many rows have been written since then. A value
 * that the ANALYZE has not seen can still be in some rows, so it has no share.
 */
async function readStatistics(
  client: Queryable,
  { qualified }: TaskTable,
  column: "state" | "ready",
): Promise<Estimates> {
  const { rows: parts } = await client.query<Part>(
    `SELECT CASE WHEN pg_stat_get_live_tuples(c.oid) > 0 THEN pg_stat_get_live_tuples(c.oid)
         WHEN c.reltuples > 0 THEN c.reltuples / c.relpages * c.pages WHEN c.pages = 0 THEN 0 END::float8 AS rows,
       pg_stat_get_mod_since_analyze(c.oid)::float8 AS changed,
       ${isoTimeSql("greatest(pg_stat_get_last_analyze_time(c.oid), pg_stat_get_last_autoanalyze_time(c.oid))")} AS "analyzedAt",
       s.most_common_vals::text::text[] AS values, s.most_common_freqs::float8[] AS shares
     FROM (SELECT oid, relname, relnamespace, reltuples, relpages,
         pg_relation_size(oid) / current_setting('block_size')::int AS pages FROM pg_catalog.pg_class
       WHERE relkind = 'r' AND oid IN (SELECT $1::regclass UNION SELECT relid FROM pg_partition_tree($1::regclass))) AS c
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_stats AS s
       ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = $2 AND NOT s.inherited`,
    [qualified, column],
  );
  const known = parts.filter((part): part is Part & { readonly rows: number } => part.rows !== null);
  if (known.length < parts.length) return noStatistics;
  const total = known.reduce((sum, { rows }) => sum + rows, 0);
  const numbers = new Map<string, number>();
  for (const { rows, changed, values, shares } of known) {
    if (rows > 0 && (values === null || changed > rows / 2)) return { ...noStatistics, rows: estimated(total) };
    for (const [place, value] of (values ?? []).entries()) {
      numbers.set(value, (numbers.get(value) ?? 0) + rows * (shares?.[place] ?? 0));
    }
  }
  const shares = new Map([...numbers].map(([value, rows]) => [value, rows / Math.max(1, total)]));
  const times = known.flatMap(({ analyzedAt }) => analyzedAt ?? []);
  const analyzedAt = times.toSorted((one, other) => Date.parse(one) - Date.parse(other))[0] ?? null;
  return { rows: estimated(total), shares, analyzedAt };
}

interface Estimates {
  readonly rows: Count;
  readonly shares: ReadonlyMap<string, number>;
  /** The oldest ANALYZE of a part. */
  readonly analyzedAt: string | null;
}

const noStatistics: Estimates = { rows: unknownCount, shares: new Map(), analyzedAt: null };

/** A table without partitions, or a partition. */
interface Part {
  readonly rows: number | null;
  readonly changed: number;
  readonly analyzedAt: string | null;
  readonly values: readonly string[] | null;
  readonly shares: readonly number[] | null;
}

const perState = (count: (state: TaskState) => Count): Record<TaskState, Count> =>
  Object.assign({}, ...taskStates.map((state) => ({ [state]: count(state) })));

export type Backlog = Awaited<ReturnType<typeof readBacklog>>;

/** What an index gives is counted up to this number. */
export const maxCounted = 10_000;

/** Reads indexes, so that finished rows are not read. */
export async function readBacklog(client: Queryable, table: TaskTable) {
  const { qualified } = table;
  const row = await queryOne<{
    ready: number;
    later: number;
    overdue: number;
    oldestDue: string | null;
    oldestDueMs: number | null;
    nextPlan: string | null;
  }>(
    client,
    `WITH ready AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxCounted + 1}
     ), later AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxCounted + 1}
     ), due AS (
       SELECT plan FROM ready UNION ALL SELECT plan FROM later WHERE plan <= clock_timestamp()
     )
     SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later,
       (SELECT count(*) FROM later WHERE plan <= clock_timestamp())::float8 AS overdue,
       ${isoTimeSql("o.plan")} AS "oldestDue",
       CASE WHEN isfinite(o.plan) THEN greatest(0, ${millisecondsSql("clock_timestamp() - o.plan")}) END AS "oldestDueMs",
       (SELECT ${isoTimeSql("min(plan)")} FROM later WHERE plan > clock_timestamp()) AS "nextPlan"
     FROM (SELECT min(plan) AS plan FROM due) AS o`,
  );
  const { ready, later, overdue, oldestDue, oldestDueMs, nextPlan } = row;
  const isCounted = ready <= maxCounted && later <= maxCounted;
  const { rows, shares } = isCounted ? noStatistics : await readStatistics(client, table, "ready");
  const count = (counted: number, isMarkedDue: "t" | "f", uncounted: number): Count =>
    counted <= maxCounted ? exactly(counted + uncounted) : shareOf(rows, shares, isMarkedDue, maxCounted);
  return {
    // `overdue` counts tasks that are due but not marked due yet.
    due: count(ready, "t", overdue),
    planned: count(later, "f", -overdue),
    // Among those that were counted. The duration is null if the planned time is -infinity.
    oldestDue,
    oldestDueMs,
    nextPlan,
  };
}

/** How long the oldest due task has been due that no pause keeps from starting; null if there is none. */
export async function readOldestUnpaused(client: Queryable, { qualified, pauses }: TaskTable): Promise<number | null> {
  const due = (condition: string, order: string): string =>
    `(SELECT t.plan::timestamptz AS plan, t."group" FROM ${qualified} AS t WHERE ${condition} ORDER BY ${order} LIMIT ${maxCounted})`;
  return await queryValue(
    client,
    `SELECT greatest(0, ${millisecondsSql("clock_timestamp() - min(d.plan)")}) AS ms
     FROM (${due(isDueSql, dueOrderSql)} UNION ALL ${due(isPlannedSql, "t.plan")}) AS d
     WHERE d.plan <= clock_timestamp() AND isfinite(d.plan)
       AND NOT EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = d."group")`,
  );
}

export interface EndedCounts {
  readonly ended: number;
  readonly failed: number;
  /** Whether there may be more: not all rows were read, and none of the oldest that were read ended before this time. */
  readonly more: boolean;
}

export type Rates = Awaited<ReturnType<typeof readRates>>;

/** This many of the oldest rows that were read decide whether there may be more runs of a time. */
const oldestRows = 100;

/** Counts at most `limit` of the newest rows, so that the cost does not depend on the table's size. */
export async function readRates(client: Queryable, { qualified }: TaskTable, limit: number) {
  interface Row extends Record<"minute" | "hour" | "minuteFailed" | "hourFailed", number> {
    readonly full: boolean;
    readonly beforeMinute: boolean;
    readonly beforeHour: boolean;
  }
  const row = await queryOne<Row>(
    client,
    `WITH newest AS MATERIALIZED (
       SELECT t.id, t.state::text AS state, t.stop::timestamptz AS stop FROM ${qualified} AS t ORDER BY t.id DESC LIMIT $1
     ), ended AS (
       SELECT state = 'FAIL' AS failed, stop > clock_timestamp() - interval '1 minute' AS recent
       FROM newest WHERE state IN ('DONE', 'FAIL') AND stop > clock_timestamp() - interval '1 hour'
     ), oldest AS (
       SELECT stop FROM newest ORDER BY id LIMIT ${oldestRows}
     )
     SELECT count(*) FILTER (WHERE recent)::float8 AS minute, count(*)::float8 AS hour,
       count(*) FILTER (WHERE recent AND failed)::float8 AS "minuteFailed", count(*) FILTER (WHERE failed)::float8 AS "hourFailed",
       (SELECT count(*) >= $1 FROM newest) AS full,
       EXISTS (SELECT FROM oldest WHERE stop <= clock_timestamp() - interval '1 minute') AS "beforeMinute",
       EXISTS (SELECT FROM oldest WHERE stop <= clock_timestamp() - interval '1 hour') AS "beforeHour"
     FROM ended`,
    [limit],
  );
  return {
    lastMinute: { ended: row.minute, failed: row.minuteFailed, more: row.full && !row.beforeMinute },
    lastHour: { ended: row.hour, failed: row.hourFailed, more: row.full && !row.beforeHour },
  };
}

const maxRows = 1_000;

export type Latencies = Awaited<ReturnType<typeof readLatencies>>;

/**
 * From plan to start, and from start to end, of the runs among the newest rows that have ended, with their number and
 * the times of their ends. Null if none has ended.
 */
export async function readLatencies(client: Queryable, { qualified }: TaskTable) {
  interface Row extends Record<"wait" | "run", number[] | null>, Record<"first" | "last", string | null> {
    readonly runs: number;
  }
  const { wait, run, runs, first, last } = await queryOne<Row>(
    client,
    `SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY greatest(0, extract(epoch FROM start - plan)::float8 * 1000)) AS wait,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY extract(epoch FROM stop - start)::float8 * 1000) AS run,
       count(*)::float8 AS runs, ${isoTimeSql("min(stop)")} AS first, ${isoTimeSql("max(stop)")} AS last
     FROM (
       SELECT plan::timestamptz AS plan, start::timestamptz AS start, stop::timestamptz AS stop, state::text AS state
       FROM ${qualified} ORDER BY id DESC LIMIT ${maxRows}
     ) AS latest WHERE isfinite(plan) AND isfinite(start) AND isfinite(stop) AND state IN ('DONE', 'FAIL')`,
  );
  const measured = first === null || last === null ? null : { runs, first, last };
  return { waitMs: percentiles(wait), runMs: percentiles(run), measured };
}

function percentiles(values: number[] | null) {
  const [p50, p95] = values ?? [];
  return p50 === undefined || p95 === undefined ? null : { p50, p95 };
}

/** Changes whenever rows of the table or of its partitions are written. */
export async function readChangeCounter(client: Queryable, { qualified }: TaskTable): Promise<string> {
  const changes = await queryValue<string | null>(
    client,
    `SELECT sum(pg_stat_get_tuples_inserted(part) + pg_stat_get_tuples_updated(part)
       + pg_stat_get_tuples_deleted(part))::text AS changes
     FROM (SELECT $1::regclass::oid AS part UNION
       SELECT relid::oid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return changes ?? "";
}

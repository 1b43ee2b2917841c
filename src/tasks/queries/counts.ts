import { queryOne, queryValue } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { taskStates, type TaskState } from "../../shared/taskState.js";
import { dueOrderSql, isDueSql, isPlannedSql, isoTimeSql, millisecondsSql } from "../sqlFragments.js";

/** In pages; with pages of 8 kB, this is 32 MB. The rows of larger tables are estimated. */
const maxCountedPages = 4096;

export interface RowCounts {
  readonly rows: Count;
  readonly states: Readonly<Record<TaskState, Count>>;
}

/** Estimates for a large table, except of the tasks in PLAN, which the backlog has counted by indexes. */
export async function readRowCounts(
  client: Client,
  table: TaskTable,
  { due, planned }: { readonly due: Count; readonly planned: Count },
): Promise<RowCounts> {
  if ((await readPages(client, table)) <= maxCountedPages) return await countRows(client, table);
  const { rows, states } = await estimateCounts(client, table);
  const PLAN = { value: due.value + planned.value, exact: due.exact && planned.exact };
  return { rows, states: { ...states, PLAN } };
}

/** Includes the pages of its partitions. */
export const readPages = async (client: Client, { qualified }: TaskTable): Promise<number> =>
  await queryValue(
    client,
    `SELECT (coalesce(sum(pg_relation_size(part)), 0) / current_setting('block_size')::int)::float8 AS pages
     FROM (SELECT $1::regclass AS part UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );

const exactCount = (value: number): Count => ({ value, exact: true });

async function countRows(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const { rows } = await client.query<{ state: TaskState; rows: number }>(
    `SELECT state::text AS state, count(*)::float8 AS rows FROM ${qualified} GROUP BY 1`,
  );
  const numbers = new Map(rows.map((row) => [row.state, row.rows]));
  return {
    rows: exactCount(rows.reduce((sum, row) => sum + row.rows, 0)),
    states: perState((state) => exactCount(numbers.get(state) ?? 0)),
  };
}

async function estimateCounts(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const expected = async (condition: string): Promise<Count> => ({
    value: await estimateRows(client, `${qualified} ${condition}`),
    exact: false,
  });
  const all = await expected("");
  const found = new Map<TaskState, Count>();
  // A literal without a type takes the column's type, for which the planner has statistics.
  for (const state of taskStates) found.set(state, await expected(`WHERE state = ${literal(state)}`));
  return { rows: all, states: perState((state) => found.get(state) ?? all) };
}

const perState = (count: (state: TaskState) => Count): Record<TaskState, Count> =>
  Object.assign({}, ...taskStates.map((state) => ({ [state]: count(state) })));

/** A count, or an estimate if counting would take long. */
export interface Count {
  readonly value: number;
  readonly exact: boolean;
}

/** @param source what follows FROM in a query */
async function estimateRows(client: Client, source: string): Promise<number> {
  const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>(
    `EXPLAIN (FORMAT JSON) SELECT FROM ${source}`,
  );
  return rows[0]?.["QUERY PLAN"][0].Plan["Plan Rows"] ?? 0;
}

export type Backlog = Awaited<ReturnType<typeof readBacklog>>;

const maxCounted = 10_000;

/** Reads indexes, so that finished rows are not read. Larger numbers than `maxCounted` are estimates. */
export async function readBacklog(client: Client, { qualified }: TaskTable) {
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
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxCounted}
     ), later AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxCounted}
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
  const due = await countOrEstimate(client, ready, `${qualified} WHERE ready`);
  // With the condition NOT ready, the planner would also count the finished rows, in which `ready` is null.
  const planned = await countOrEstimate(client, later, `${qualified} WHERE ready IS FALSE`);
  return {
    // `overdue` counts tasks that are due but not marked due yet.
    due: { ...due, value: due.value + overdue },
    planned: { ...planned, value: Math.max(0, planned.value - overdue) },
    // Among those that were counted. The duration is null if the planned time is -infinity.
    oldestDue,
    oldestDueMs,
    nextPlan,
  };
}

async function countOrEstimate(client: Client, counted: number, source: string): Promise<Count> {
  if (counted < maxCounted) return { value: counted, exact: true };
  return { value: Math.max(counted, await estimateRows(client, source)), exact: false };
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
export async function readRates(client: Client, { qualified }: TaskTable, limit: number) {
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

/** From plan to start, and from start to end, in the newest rows. Null if none of these has ended. */
export async function readLatencies(client: Client, { qualified }: TaskTable) {
  const { rows } = await client.query<{ wait: number[] | null; run: number[] | null }>(
    `SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY greatest(0, extract(epoch FROM start - plan)::float8 * 1000)) AS wait,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY extract(epoch FROM stop - start)::float8 * 1000) AS run
     FROM (
       SELECT plan::timestamptz AS plan, start::timestamptz AS start, stop::timestamptz AS stop, state::text AS state
       FROM ${qualified} ORDER BY id DESC LIMIT ${maxRows}
     ) AS latest WHERE isfinite(plan) AND isfinite(start) AND isfinite(stop) AND state IN ('DONE', 'FAIL')`,
  );
  return { waitMs: percentiles(rows[0]?.wait), runMs: percentiles(rows[0]?.run) };
}

function percentiles(values: number[] | null | undefined) {
  const [p50, p95] = values ?? [];
  return p50 === undefined || p95 === undefined ? null : { p50, p95 };
}

/** Changes whenever rows of the table or of its partitions are written. */
export async function readChangeCounter(client: Client, { qualified }: TaskTable): Promise<string> {
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

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Number of runs that ended in DONE or FAIL, and number of runs that ended in FAIL. */
export interface EndedCounts {
  readonly ended: number;
  readonly failed: number;
  /** Whether there may be more: not all rows were read, and none of the oldest that were read ended before this time. */
  readonly more: boolean;
}

/** Numbers of runs that ended within the last minute and within the last hour. Only the newest rows are counted. */
export interface Rates {
  readonly lastMinute: EndedCounts;
  readonly lastHour: EndedCounts;
}

/** This many of the oldest rows that were read decide whether there may be more runs of a time. */
const oldestRows = 100;

/**
 * Counts the runs that ended recently, in up to `limit` of the newest rows by id. The cost therefore does not depend on
 * the table's size.
 */
export async function readRates(client: Client, { qualified }: TaskTable, limit: number): Promise<Rates> {
  interface Row extends Record<"minute" | "hour" | "minuteFailed" | "hourFailed", number> {
    readonly full: boolean;
    readonly beforeMinute: boolean;
    readonly beforeHour: boolean;
  }
  const { rows } = await client.query<Row>(
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
  const [row] = rows;
  if (row === undefined) throw new Error("an aggregate has one row");
  return {
    lastMinute: { ended: row.minute, failed: row.minuteFailed, more: row.full && !row.beforeMinute },
    lastHour: { ended: row.hour, failed: row.hourFailed, more: row.full && !row.beforeHour },
  };
}

/** 50th and 95th percentile of a duration, in ms. */
export interface Percentiles {
  readonly p50: number;
  readonly p95: number;
}

/** How many of the newest rows are read to compute latencies. */
const maxRows = 1_000;

/**
 * Returns percentiles of two durations, computed from the newest rows: from the planned time to the start, and from the
 * start to the end. Each is null if these rows contain no ended runs.
 */
export async function readLatencies(
  client: Client,
  { qualified }: TaskTable,
): Promise<{ readonly waitMs: Percentiles | null; readonly runMs: Percentiles | null }> {
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

function percentiles(values: number[] | null | undefined): Percentiles | null {
  const [p50, p95] = values ?? [];
  return p50 === undefined || p95 === undefined ? null : { p50, p95 };
}

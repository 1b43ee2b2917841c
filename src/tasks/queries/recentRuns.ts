import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Number of runs that ended in DONE or FAIL, and number of runs that ended in FAIL. */
export interface EndedCounts {
  readonly ended: number;
  readonly failed: number;
}

/** Numbers of runs that ended within the last minute and within the last hour. Only the newest rows are counted. */
export interface Rates {
  readonly lastMinute: EndedCounts;
  readonly lastHour: EndedCounts;
}

/**
 * Counts the runs that ended recently, in up to `limit` of the newest rows by id. The cost therefore does not depend on
 * the table's size.
 */
export async function readRates(client: Client, { qualified }: TaskTable, limit: number): Promise<Rates> {
  const { rows } = await client.query<Record<"minute" | "hour" | "minuteFailed" | "hourFailed", number>>(
    `SELECT count(*) FILTER (WHERE recent)::float8 AS minute, count(*)::float8 AS hour,
       count(*) FILTER (WHERE recent AND failed)::float8 AS "minuteFailed", count(*) FILTER (WHERE failed)::float8 AS "hourFailed"
     FROM (
       SELECT state = 'FAIL' AS failed, stop > clock_timestamp() - interval '1 minute' AS recent
       FROM (SELECT t.state::text AS state, t.stop::timestamptz AS stop FROM ${qualified} AS t ORDER BY t.id DESC LIMIT $1) AS newest
       WHERE state IN ('DONE', 'FAIL') AND stop > clock_timestamp() - interval '1 hour'
     ) AS ended`,
    [limit],
  );
  const { minute = 0, hour = 0, minuteFailed = 0, hourFailed = 0 } = rows[0] ?? {};
  return {
    lastMinute: { ended: minute, failed: minuteFailed },
    lastHour: { ended: hour, failed: hourFailed },
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

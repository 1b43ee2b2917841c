import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Half of them take no longer than the first, 95 percent no longer than the second, in ms. */
export interface Spread {
  readonly p50: number;
  readonly p95: number;
}

/** Rows that are looked at. */
const newest = 1_000;

/** Of the latest rows: how long from plan to start, and from start to stop; null without any. */
export async function readLatencies(
  client: Client,
  { qualified }: TaskTable,
): Promise<{ readonly waitMs: Spread | null; readonly runMs: Spread | null }> {
  const { rows } = await client.query<{ wait: number[] | null; run: number[] | null }>(
    `SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY greatest(0, extract(epoch FROM start - plan)::float8 * 1000)) AS wait,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY extract(epoch FROM stop - start)::float8 * 1000) AS run
     FROM (
       SELECT plan::timestamptz AS plan, start::timestamptz AS start, stop::timestamptz AS stop, state::text AS state
       FROM ${qualified} ORDER BY id DESC LIMIT ${newest}
     ) AS latest WHERE isfinite(plan) AND isfinite(start) AND isfinite(stop) AND state IN ('DONE', 'FAIL')`,
  );
  return { waitMs: spread(rows[0]?.wait), runMs: spread(rows[0]?.run) };
}

function spread(values: number[] | null | undefined): Spread | null {
  const [p50, p95] = values ?? [];
  return p50 === undefined || p95 === undefined ? null : { p50, p95 };
}

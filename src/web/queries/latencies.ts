import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { Summary } from "../schemas.js";

/** Of the latest rows: how long from plan to start, and from start to stop. */
export async function latencies(
  client: Client,
  { qualified }: TaskTable,
): Promise<Pick<Summary, "waitMs" | "runMs">> {
  const { rows } = await client.query<{ wait: number[] | null; run: number[] | null }>(
    `SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY greatest(0, extract(epoch FROM start - plan)::float8 * 1000)) AS wait,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP
         (ORDER BY extract(epoch FROM stop - start)::float8 * 1000) AS run
     FROM (
       SELECT plan::timestamptz AS plan, start::timestamptz AS start, stop::timestamptz AS stop, state::text AS state
       FROM ${qualified} ORDER BY id DESC LIMIT 1000
     ) AS latest WHERE isfinite(plan) AND isfinite(start) AND isfinite(stop) AND state IN ('DONE', 'FAIL')`,
  );
  return { waitMs: pair(rows[0]?.wait), runMs: pair(rows[0]?.run) };
}

function pair(values: number[] | null | undefined): Summary["runMs"] {
  const [p50, p95] = values ?? [];
  return p50 === undefined || p95 === undefined ? null : { p50, p95 };
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Runs that ended as DONE or FAIL, and those of them as FAIL. */
export interface EndedRates {
  readonly ended: number;
  readonly failed: number;
}

/** What the newest rows say of the last minutes. */
export interface Rates {
  readonly lastMinute: EndedRates;
  readonly lastHour: EndedRates;
}

/** Looks at no more than the newest `most` rows by id, so that it costs the same in a table of any size. */
export async function readRates(
  client: Client,
  { qualified }: TaskTable,
  most: number,
): Promise<Rates> {
  const { rows } = await client.query<
    Record<"minute" | "hour" | "minuteFailed" | "hourFailed", number>
  >(
    `SELECT count(*) FILTER (WHERE recent)::float8 AS minute, count(*)::float8 AS hour,
       count(*) FILTER (WHERE recent AND failed)::float8 AS "minuteFailed", count(*) FILTER (WHERE failed)::float8 AS "hourFailed"
     FROM (
       SELECT state = 'FAIL' AS failed, stop > clock_timestamp() - interval '1 minute' AS recent
       FROM (SELECT t.state::text AS state, t.stop::timestamptz AS stop FROM ${qualified} AS t ORDER BY t.id DESC LIMIT $1) AS newest
       WHERE state IN ('DONE', 'FAIL') AND stop > clock_timestamp() - interval '1 hour'
     ) AS ended`,
    [most],
  );
  const { minute = 0, hour = 0, minuteFailed = 0, hourFailed = 0 } = rows[0] ?? {};
  return {
    lastMinute: { ended: minute, failed: minuteFailed },
    lastHour: { ended: hour, failed: hourFailed },
  };
}

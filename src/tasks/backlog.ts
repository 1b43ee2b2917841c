import type { TaskTable } from "../manager/table.js";
import type { Client } from "../shared/database.js";
import { isoTime, milliseconds } from "./time.js";

/** What waits in a table, and what became of its newest rows. */
export interface Backlog {
  /** Estimated by the server; null where it has not counted yet. */
  readonly rows: number | null;
  /** Tasks in PLAN whose plan has come, and those whose plan has not. */
  readonly due: number;
  readonly planned: number;
  /** Earliest plan of those that are due, and for how long that has been so, in ms. */
  readonly oldestDue: string | null;
  readonly oldestDueMs: number | null;
  /** Earliest plan of those that are not. */
  readonly nextPlan: string | null;
}

/** By the queue's indexes, so that rows that ended cost nothing. */
export async function readBacklog(client: Client, { qualified }: TaskTable): Promise<Backlog> {
  const { rows } = await client.query<Backlog>(
    `WITH waiting AS (
       SELECT plan::timestamptz AS plan FROM ${qualified} WHERE ready
       UNION ALL SELECT plan::timestamptz FROM ${qualified} WHERE NOT ready AND ready IS FALSE
     ), counted AS (
       SELECT count(*) FILTER (WHERE plan <= clock_timestamp()) AS due, count(*) FILTER (WHERE plan > clock_timestamp()) AS planned,
         min(plan) FILTER (WHERE plan <= clock_timestamp()) AS oldest, min(plan) FILTER (WHERE plan > clock_timestamp()) AS next
       FROM waiting
     )
     SELECT due::float8 AS due, planned::float8 AS planned, ${isoTime("oldest")} AS "oldestDue",
       CASE WHEN isfinite(oldest) THEN ${milliseconds("clock_timestamp() - oldest")} END AS "oldestDueMs",
       ${isoTime("next")} AS "nextPlan",
       (SELECT CASE WHEN sum(c.reltuples) FILTER (WHERE c.reltuples > 0) > 0 THEN sum(greatest(c.reltuples, 0)) END::float8
        FROM pg_catalog.pg_class AS c WHERE c.relkind = 'r' AND (c.oid = $1::regclass
          OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::regclass)))) AS rows
     FROM counted`,
    [qualified],
  );
  const [row] = rows;
  if (row === undefined) throw new Error("an aggregate has one row");
  return row;
}

/** What the newest rows say of the last minutes. */
export interface Recent {
  /** Rows that were looked at. */
  readonly looked: number;
  readonly states: Readonly<Record<string, number>>;
  /** Runs that ended as DONE or FAIL within the last minute and the last hour, and those as FAIL. */
  readonly lastMinute: { readonly ended: number; readonly failed: number };
  readonly lastHour: { readonly ended: number; readonly failed: number };
}

/** Looks at no more than the newest `most` rows by id, so that it costs the same in a table of any size. */
export async function readRecent(
  client: Client,
  { qualified }: TaskTable,
  most: number,
): Promise<Recent> {
  const { rows } = await client.query<{
    state: string;
    count: number;
    minute: number;
    hour: number;
  }>(
    `SELECT state, count(*)::float8 AS count,
       count(*) FILTER (WHERE stop > clock_timestamp() - interval '1 minute')::float8 AS minute,
       count(*) FILTER (WHERE stop > clock_timestamp() - interval '1 hour')::float8 AS hour
     FROM (SELECT state::text AS state, stop::timestamptz AS stop FROM ${qualified} ORDER BY id DESC LIMIT $1) AS newest
     GROUP BY state ORDER BY state`,
    [most],
  );
  const ran = rows.filter(({ state }) => state === "DONE" || state === "FAIL");
  const failures = rows.filter(({ state }) => state === "FAIL");
  const sum = (list: typeof rows, of: "count" | "minute" | "hour"): number =>
    list.reduce((total, row) => total + row[of], 0);
  return {
    looked: sum(rows, "count"),
    states: Object.fromEntries(rows.map(({ state, count }) => [state, count])),
    lastMinute: { ended: sum(ran, "minute"), failed: sum(failures, "minute") },
    lastHour: { ended: sum(ran, "hour"), failed: sum(failures, "hour") },
  };
}

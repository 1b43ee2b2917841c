import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { mayServeSql } from "../../shared/postgres/ownerBackends.js";
import { isEndableSql } from "../explain/locks.js";
import { isoTimeSql } from "../sqlFragments.js";

export interface BlockerToEnd {
  readonly pid: number;
  /** When the backend started, as an explanation has shown it. */
  readonly started: string;
  /** Whether to cancel its statement, or to end its connection. */
  readonly how: "cancel" | "terminate";
}

/**
 * Ends what keeps a task waiting, if the backend still does so: it blocks the backend that runs the task, or its open
 * transaction has locked the row of the waiting task. No other backend can be ended, nor one of pg-task.
 *
 * @returns whether the backend was told to end; null if it does not block the task
 * @throws the server's error 42501 if this role may not end it
 */
export async function endBlocker(
  client: Queryable,
  table: TaskTable,
  id: string,
  { pid, started, how }: BlockerToEnd,
): Promise<boolean | null> {
  const { qualified } = table;
  const { rows } = await client.query<{ ended: boolean }>(
    `WITH it AS MATERIALIZED (
       SELECT t.xmax AS changer, t.owner IS NULL AND t.state::text = 'PLAN' AS waits,
         CASE WHEN t.state::text = 'WORK' AND t.remote IS NULL THEN o.pid END AS runner
       FROM ${qualified} AS t LEFT JOIN pg_catalog.pg_stat_activity AS o
         ON o.pid::text = split_part(t.owner::text, ' ', 1) AND ${mayServeSql("o", table)}
       WHERE t.id = $1::bigint
     ), free AS MATERIALIZED (
       SELECT FROM ${qualified} AS t WHERE t.id = $1::bigint AND t.owner IS NULL FOR NO KEY UPDATE SKIP LOCKED
     ), blocker AS MATERIALIZED (
       SELECT a.pid FROM it JOIN pg_catalog.pg_stat_activity AS a ON a.pid = $2::integer
       WHERE ${isoTimeSql("a.backend_start")} = $3 AND ${isEndableSql("a")} AND (
         it.runner IS NOT NULL AND a.pid = ANY (pg_catalog.pg_blocking_pids(it.runner))
         OR it.waits AND NOT EXISTS (SELECT FROM free) AND EXISTS (SELECT FROM pg_catalog.pg_locks AS l
           WHERE l.pid = a.pid AND l.locktype = 'transactionid' AND l.granted AND l.transactionid = it.changer))
     )
     SELECT CASE WHEN $4 = 'cancel' THEN pg_catalog.pg_cancel_backend(pid) ELSE pg_catalog.pg_terminate_backend(pid) END AS ended
     FROM blocker`,
    [id, pid, started, how],
  );
  return rows[0]?.ended ?? null;
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { busySessionName, idleSessionName, isManagerSql } from "../../shared/postgres/applicationNames.js";
import { startBlockers, type StartBlocker } from "../../manager/schema/startRule.sql.js";
import { mayServeSql } from "../../shared/postgres/ownerBackends.js";
import { managerSinceSql } from "../queries/clusterProcesses.js";
import { shownName, shownNames } from "../queries/executorSessions.js";
import { keyHolderQuery } from "../queries/keyHolder.js";
import { areMoreRejectedSql, isRejectedSql } from "../queries/rejectedResults.js";
import { isoTimeSql, millisecondsSql } from "../sqlFragments.js";

/** The data of a task that determine whether it can run now. */
export interface TaskSituation {
  readonly id: string;
  readonly state: string;
  readonly group: string | null;
  readonly max: number;
  readonly plan: string | null;
  /** Time until the task's planned time, in ms. Negative if the planned time has passed, null if it is infinite. */
  readonly waitMs: number | null;
  /** Why the task must not start, if it is in PLAN. */
  readonly blockers: readonly StartBlocker[];
  readonly start: string | null;
  readonly stop: string | null;
  readonly pid: number | null;
  /** Whether the task has a connection string in `remote`. Such a task usually runs on another server. */
  readonly remote: boolean;
  /** First line of the task's error, cut after 1000 characters. */
  readonly problem: string | null;
  /** Whether what failed is not the task's input, but the query in its rule, which computes when the task runs. */
  readonly queryFailed: boolean;
  /** The backend that owns the task, as pid and start time. Null if no backend owns the task. */
  readonly owner: string | null;
  /** Whether the owner is alive, as far as this role can see. */
  readonly ownerLives: boolean;
  /**
   * Whether the task's run has ended, as far as this role can see. It has ended if, since the task's start, the owner
   * has been idle for a second or has started another task.
   */
  readonly runEnded: boolean;
  /** Whether the task's run has ended and the server rejects its result, as the table's manager shows by a lock. */
  readonly rejected: boolean;
  /**
   * Whether the manager shows as many rejected results as it can. The result of this task, if its run has ended, may then
   * be rejected although `rejected` is false.
   */
  readonly moreRejected: boolean;
  /** Number of sessions that run tasks of the same group. */
  readonly groupRuns: number;
  /** Ids of up to ten claimed tasks of the same group. */
  readonly claimedOfGroup: readonly string[];
  /**
   * Number of due tasks of the same group that start before this task. `aheadMore` tells whether there are more than
   * were counted.
   */
  readonly ahead: number;
  readonly aheadMore: boolean;
  /**
   * The tasks for whose end this one waits, as id and state, at most ten. Null if it does not wait for others.
   */
  readonly waitsFor: readonly string[] | null;
  /** How often the task has been tried without success, and how often it is tried again at most. */
  readonly attempt: number;
  readonly retry: number;
  /** Id of the claimed task that has the same key. Null if there is none. */
  readonly keyRunsIn: string | null;
  /** Id of the task that waits with the key of this task, which has ended. Null if there is none. */
  readonly keyWaitsIn: string | null;
  /** Number of sessions that run tasks of any group of the table, according to the rows. */
  readonly tableRuns: number;
  /** The task's gap, in ms. 0 if it has none. */
  readonly gapMs: number;
  /**
   * When a task of the group last started, as far as the rows and the age of the manager's connection tell, and the time
   * until the gap has passed since then, in ms. Both are null if neither shows a start, and if the task has no gap.
   */
  readonly lastStart: string | null;
  readonly gapLeftMs: number | null;
}

/**
 * Maximum number of rows, up to and including the task's own row, that are searched for running tasks. The same maximum
 * applies to the newest rows, which are searched as well.
 */
const maxScannedRows = 10_000;
/** Maximum number of due tasks of the same group that are counted. */
const maxAhead = 1_000;

/** SQL of the first line of the error. A line can be longer than anybody would read, and `show` prints it whole. */
const problemSql = `(SELECT CASE WHEN length(e.line) > 1000 THEN left(e.line, 1000) || '…' ELSE e.line END
  FROM split_part(it.error::text, E'\\n', 1) AS e(line))`;

const scannedColumns = "t.id, t.owner, t.hash, t.state::text AS state, t.start::timestamptz AS start";

/**
 * Reads a task's situation. No index covers running tasks. They are therefore found by scanning the rows before the
 * task and the newest rows, and by reading the application names of all sessions.
 *
 * @returns null if there is no such task.
 */
export async function readSituation(client: Queryable, table: TaskTable, id: string): Promise<TaskSituation | null> {
  const { qualified, pauses } = table;
  const { rows } = await client.query<Omit<TaskSituation, "aheadMore">>(
    `WITH it AS MATERIALIZED (
       SELECT * FROM ${qualified} WHERE id = $1::bigint LIMIT 1
     ), shown AS MATERIALIZED (
       ${shownNames(`ARRAY[$2 || coalesce((SELECT "group"::text FROM it), ''), $3]`)}
     ), scanned AS MATERIALIZED (
       (SELECT ${scannedColumns} FROM ${qualified} AS t WHERE t.id <= $1::bigint ORDER BY t.id DESC LIMIT ${maxScannedRows})
       UNION ALL
       (SELECT ${scannedColumns} FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id DESC LIMIT ${maxScannedRows})
     ), claimed AS MATERIALIZED (
       SELECT s.id, s.owner, s.hash, (SELECT t.key FROM ${qualified} AS t WHERE t.id = s.id) AS key FROM scanned AS s WHERE s.owner IS NOT NULL
     ), ahead AS (
       SELECT FROM it, LATERAL (
         SELECT o.max, o.id, o."group" FROM ${qualified} AS o WHERE o.ready AND o.hash = ANY (ARRAY[it.hash])
         ORDER BY o.hash, greatest(o.max, 0) DESC, o.id LIMIT ${maxAhead + 1}
       ) AS o
       WHERE (greatest(o.max, 0) > greatest(it.max, 0) OR greatest(o.max, 0) = greatest(it.max, 0) AND o.id < it.id)
         -- Another name with the same hash, which waits for its own pause.
         AND (o."group" = it."group" OR NOT EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = o."group"))
     )
     SELECT it.id::text AS id, it.state::text AS state, it."group"::text AS "group", it.max::float8 AS max,
       ${isoTimeSql("it.plan")} AS plan,
       CASE WHEN isfinite(it.plan::timestamptz) THEN ${millisecondsSql("it.plan::timestamptz - clock_timestamp()")} END AS "waitMs",
       ${startBlockers(table, { running: 'l."groupRuns"', keyRuns: 'l."keyRunsIn" IS NOT NULL', quietMs: 'l."quietMs"' }, "it")} AS blockers,
       ${isoTimeSql("it.start")} AS start, ${isoTimeSql("it.stop")} AS stop, it.pid::float8 AS pid,
       it.remote IS NOT NULL AS remote, ${problemSql} AS problem,
       it.state::text = 'FAIL' AND coalesce(it.wait < 0, false) AS "queryFailed", it.owner::text AS owner,
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)
         AND ${mayServeSql("a", table)}) AS "ownerLives",
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)
         AND a.state = 'idle' AND a.state_change > it.start::timestamptz AND a.state_change < clock_timestamp() - interval '1 second')
       OR EXISTS (SELECT FROM scanned AS o WHERE o.owner::text = it.owner::text AND o.state = 'WORK' AND o.start > it.start::timestamptz) AS "runEnded",
       ${isRejectedSql(table, "it")} AS rejected, it.owner IS NOT NULL AND ${areMoreRejectedSql(table)} AS "moreRejected",
       l."groupRuns",
       ARRAY(SELECT c.id::text FROM claimed AS c WHERE c.hash = it.hash ORDER BY c.id LIMIT 10) AS "claimedOfGroup",
       l."keyRunsIn",
       ${keyWaitsInSql(table)} AS "keyWaitsIn",
       ${predecessorsSql(qualified)} AS "waitsFor",
       coalesce(it.attempt, 0) AS attempt, coalesce(it.retry, 0) AS retry,
       (SELECT count(*) FROM ahead)::float8 AS ahead,
       (SELECT count(DISTINCT c.owner) FROM claimed AS c)::float8 AS "tableRuns",
       coalesce(${millisecondsSql("it.gap")}, 0) AS "gapMs", ${isoTimeSql('l."lastStart"')} AS "lastStart",
       ${millisecondsSql("it.gap")} - l."quietMs" AS "gapLeftMs"
     FROM it CROSS JOIN LATERAL (
       SELECT s."groupRuns", s."keyRunsIn", s."lastStart", ${millisecondsSql('clock_timestamp() - s."lastStart"')} AS "quietMs" FROM (
         SELECT greatest((SELECT count(DISTINCT c.owner) FROM claimed AS c WHERE c.hash = it.hash), (
             SELECT count(*) FROM pg_catalog.pg_stat_activity AS a
              WHERE a.datname = current_database() AND a.application_name = ${shownName(1)} AND a.application_name <> ${shownName(2)} AND a.pid <> pg_backend_pid()))::float8 AS "groupRuns",
            (SELECT min(c.id)::text FROM claimed AS c WHERE c.key = it.key AND c.id <> it.id) AS "keyRunsIn",
            CASE WHEN it.gap > interval '0' THEN greatest((${managerSinceSql(table)}), (
             SELECT max(o.start) FROM scanned AS o WHERE o.hash = it.hash AND o.id <> it.id AND o.state IN ('WORK', 'DONE', 'FAIL')
           )) END AS "lastStart"
       ) AS s
     ) AS l`,
    [id, busySessionName(table, ""), idleSessionName(table)],
  );
  const [row] = rows;
  if (row === undefined) return null;
  return { ...row, ahead: Math.min(row.ahead, maxAhead), aheadMore: row.ahead > maxAhead };
}

const keyWaitsInSql = (table: TaskTable): string =>
  `CASE WHEN it.ready IS NULL AND it.key IS NOT NULL THEN (${keyHolderQuery(table, "it.key")})::text END`;

const predecessorsSql = (qualified: string): string => `CASE WHEN it.wait >= 0 AND it.state::text = 'PLAN' THEN ARRAY(
         SELECT concat(p.id, ' (', p.state, ')') FROM ${qualified} AS p
         WHERE p.id = ANY (it.after) AND (p.owner IS NOT NULL OR p.state::text IN ('PLAN', 'TAKE', 'WORK')) ORDER BY p.id LIMIT 10) END`;

/** A backend whose open transaction holds a row lock. */
export interface LockHolder {
  readonly pid: number;
  readonly user: string | null;
  readonly name: string | null;
  /** How long the backend's transaction has been open, in ms. */
  readonly openMs: number | null;
}

/** How often a row is looked at whose lock may have been released before its holder could be read. */
const maxLockLooks = 5;

/**
 * Reads the lock on a task's row. A lock of the manager does not count: it locks a due row for a moment each time it
 * tries to claim the task.
 *
 * @returns null if the row is not locked, or this role may not lock rows itself. In the result, `by` is null if the
 *   holder of the lock is unknown.
 */
export async function readRowLock(
  client: Client,
  table: TaskTable,
  id: string,
): Promise<{ readonly by: LockHolder | null } | null> {
  if (!(await mayLock(client, table))) return null;
  for (let look = 1; ; look += 1) {
    const lock = await lookAtRowLock(client, table, id);
    if (lock === null || lock.isManagers) return null;
    if (lock.by !== null || look === maxLockLooks) return { by: lock.by };
  }
}

/** Whether this role may lock rows, which needs the privilege to change them. */
async function mayLock(client: Client, { qualified }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ may: boolean }>("SELECT has_any_column_privilege($1, 'UPDATE') AS may", [
    qualified,
  ]);
  return rows[0]?.may === true;
}

async function lookAtRowLock(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<{ readonly by: LockHolder | null; readonly isManagers: boolean } | null> {
  await client.query("BEGIN");
  try {
    const { rowCount: free } = await client.query(
      `SELECT FROM ${qualified} WHERE id = $1::bigint FOR NO KEY UPDATE SKIP LOCKED`,
      [id],
    );
    if (free !== 0) return null;
    const { rows } = await client.query<LockHolder & { readonly managers: boolean | null }>(
      `SELECT a.pid, ${isManagerSql("a.application_name")} AS managers, a.usename AS "user", a.application_name AS name,
         ${millisecondsSql("clock_timestamp() - a.xact_start")} AS "openMs"
       FROM ${qualified} AS t LEFT JOIN pg_catalog.pg_locks AS l
         ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
       LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
       WHERE t.id = $1::bigint LIMIT 1`,
      [id],
    );
    const [row] = rows;
    if (row === undefined) return null;
    const { managers, ...by } = row;
    return { by: by.pid === null ? null : by, isManagers: managers === true };
  } finally {
    await client.query("ROLLBACK");
  }
}

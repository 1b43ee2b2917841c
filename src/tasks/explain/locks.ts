import { queryValue } from "../queryOne.js";
import { isManagerSql, isPgTaskSql } from "../../shared/postgres/applicationNames.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { isoTimeSql, millisecondsSql } from "../sqlFragments.js";

export interface Blocker {
  /** 0 stands for a prepared transaction, which has no backend. */
  readonly pid: number;
  readonly user: string | null;
  readonly name: string | null;
  /** What its session does, such as `idle in transaction`, and since when. Null if this role must not see it. */
  readonly state: string | null;
  readonly since: string | null;
  /** When its backend started, and its last statement. Null if this role must not see them. */
  readonly started: string | null;
  readonly query: string | null;
  /** Whether it is a client that can be ended for the sake of a task, and none of pg-task. */
  readonly endable: boolean;
  /** The task that it runs. Null if it runs none, or none of the newest. */
  readonly task: string | null;
}

/** SQL: whether a row of pg_stat_activity is a client other than pg-task and this one. */
export const isEndableSql = (alias: string): string =>
  `(${alias}.backend_type = 'client backend' AND ${alias}.pid <> pg_catalog.pg_backend_pid() AND (${isPgTaskSql(`${alias}.application_name`)}) IS NOT TRUE)`;

/** Of a query, in characters. */
const maxQuery = 2_000;

/** Of a backend that this role may not see, `backend_type` and `backend_start` are null. */
const activitySql = `a.usename AS "user", a.application_name AS name, a.state, ${isoTimeSql("a.state_change")} AS since,
  ${isoTimeSql("a.backend_start")} AS started, coalesce(${isEndableSql("a")}, false) AS endable,
  CASE WHEN a.backend_start IS NOT NULL THEN left(a.query, ${maxQuery}) END AS query`;

export interface LockWait {
  /** Type of the lock, as in pg_locks. Null if the wait ended while it was read. */
  readonly type: string | null;
  readonly mode: string | null;
  /** Name of the table that is locked, or whose row is locked. Null if it is another object, or unknown. */
  readonly relation: string | null;
  readonly blockers: readonly Blocker[];
}

/** Of the newest rows, in which the task that a backend runs is looked for. */
const maxScannedRows = 10_000;

/** The CTE has the tasks that run, by the pids of their backends. */
const runningSql = ({ qualified }: TaskTable): string => `running AS MATERIALIZED (
  SELECT r.id, split_part(r.owner, ' ', 1) AS pid FROM (
    SELECT t.id, t.owner::text AS owner, t.state::text AS state FROM ${qualified} AS t ORDER BY t.id DESC LIMIT ${maxScannedRows}
  ) AS r WHERE r.owner IS NOT NULL AND r.state = 'WORK')`;

const taskOf = (pid: string): string => `(SELECT min(r.id)::text FROM running AS r WHERE r.pid = ${pid}::text)`;

export async function readLockWait(client: Queryable, table: TaskTable, pid: number): Promise<LockWait | null> {
  // A backend that waits for the transaction that has changed a row holds the lock of the row's version meanwhile.
  const { rows } = await client.query<Blocker & Omit<LockWait, "blockers">>(
    `WITH ${runningSql(table)}
     SELECT b.pid, ${activitySql},
       ${taskOf("b.pid")} AS task, l.type, l.mode, l.relation
     FROM (SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids($1)) AS pid) AS b
     LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid
     LEFT JOIN (
       SELECT w.locktype AS type, w.mode, (
         SELECT r.relation::pg_catalog.regclass::text FROM pg_catalog.pg_locks AS r
         WHERE r.pid = w.pid AND r.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
           AND r.relation IS NOT NULL AND (NOT r.granted OR w.locktype = 'transactionid' AND r.locktype = 'tuple') LIMIT 1
       ) AS relation
       FROM pg_catalog.pg_locks AS w WHERE w.pid = $1 AND NOT w.granted LIMIT 1
     ) AS l ON true ORDER BY b.pid`,
    [pid],
  );
  const [first] = rows;
  if (first === undefined) return null;
  const { type, mode, relation } = first;
  return { type, mode, relation, blockers: rows };
}

export function describeLockWait({ type, mode, relation, blockers }: LockWait): string {
  const shown = blockers.slice(0, maxShown).map(describeBlocker);
  const rest = blockers.length > maxShown ? [`${blockers.length - maxShown} more`] : [];
  return `${describeLock(type, mode, relation)}, blocked by ${[...shown, ...rest].join(", ")}`;
}

export function describeUnblocking({ blockers }: LockWait): string {
  const [first, ...others] = blockers.filter(({ pid }) => pid !== 0);
  if (first === undefined) return "COMMIT PREPARED or ROLLBACK PREPARED";
  const pid = others.length === 0 ? first.pid : "…";
  return `commit or roll back there, or end the session: SELECT pg_terminate_backend(${pid})`;
}

const maxShown = 5;

function describeLock(type: string | null, mode: string | null, relation: string | null): string {
  const where = relation === null ? "" : ` of ${relation}`;
  switch (type) {
    case null:
      return "a lock";
    case "transactionid":
    case "tuple":
      return relation === null ? "the end of a transaction, which has usually locked a row" : `a row${where}`;
    case "relation":
      return `the table${relation === null ? "" : ` ${relation}`} (${mode})`;
    default:
      return `a lock of type ${type}${where} (${mode})`;
  }
}

function describeBlocker({ pid, user, name, state, since, task }: Blocker): string {
  if (pid === 0) return "a prepared transaction (see pg_prepared_xacts)";
  if (task !== null) return `task ${task}, which runs in server process ${pid}`;
  if (user === null) return `server process ${pid}`;
  const activity =
    state === null
      ? "only members of pg_read_all_stats see what it does"
      : `${state} since ${since ?? "an unknown time"}`;
  return `server process ${pid} (${name === null || name === "" ? "no application name" : name}, user ${user}, ${activity})`;
}

export interface LockHolder extends Blocker {
  readonly openMs: number | null;
}

/**
 * Whether an open transaction other than the manager's may have locked the row. Its lock can also be one that keeps
 * nobody from changing the row. False if several transactions have locked it.
 */
export async function mayBeLocked(client: Queryable, { qualified }: TaskTable, id: string): Promise<boolean> {
  const { rows } = await client.query(
    `SELECT FROM ${qualified} AS t JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
     LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
     WHERE t.id = $1::bigint AND (${isManagerSql("a.application_name")}) IS NOT TRUE LIMIT 1`,
    [id],
  );
  return rows.length > 0;
}

/** The lock may have been released before its holder could be read. */
const maxLockLooks = 5;

/**
 * A lock of the manager does not count: it locks a due row for a moment each time it tries to claim the task.
 *
 * @returns null if the row is not locked, or this role may not lock rows; `by` is null if the holder is unknown
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

const mayLock = async (client: Client, { qualified }: TaskTable): Promise<boolean> =>
  await queryValue(client, "SELECT has_any_column_privilege($1, 'UPDATE') AND NOT pg_is_in_recovery() AS may", [
    qualified,
  ]);

async function lookAtRowLock(
  client: Client,
  table: TaskTable,
  id: string,
): Promise<{ readonly by: LockHolder | null; readonly isManagers: boolean } | null> {
  const { qualified } = table;
  await client.query("BEGIN READ WRITE");
  try {
    const { rowCount: free } = await client.query(
      `SELECT FROM ${qualified} WHERE id = $1::bigint FOR NO KEY UPDATE SKIP LOCKED`,
      [id],
    );
    if (free !== 0) return null;
    const { rows } = await client.query<LockHolder & { readonly managers: boolean | null }>(
      `WITH ${runningSql(table)}
       SELECT a.pid, ${isManagerSql("a.application_name")} AS managers, ${activitySql},
         ${millisecondsSql("clock_timestamp() - a.xact_start")} AS "openMs", ${taskOf("a.pid")} AS task
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

import type { Queryable } from "../../shared/postgres/client.js";
import { isoTimeSql } from "../sqlFragments.js";
import type { TaskSituation } from "./taskSituation.js";

/** A backend that holds a lock, or has asked for it before. */
interface Blocker {
  /** 0 stands for a prepared transaction, which has no backend. */
  readonly pid: number;
  readonly user: string | null;
  readonly name: string | null;
  /** What its session does, such as `idle in transaction`, and since when. Null if this role must not see it. */
  readonly state: string | null;
  readonly since: string | null;
}

/** The lock for which a backend waits. */
export interface LockWait {
  /** Type of the lock, as in pg_locks. Null if the wait ended while it was read. */
  readonly type: string | null;
  readonly mode: string | null;
  /** Name of the table that is locked, or whose row is locked. Null if it is another object, or unknown. */
  readonly relation: string | null;
  readonly blockers: readonly Blocker[];
}

/** Reads for which lock the backend waits, and who blocks it. Returns null if it waits for none. */
export async function readLockWait(client: Queryable, pid: number): Promise<LockWait | null> {
  const { rows: blockers } = await client.query<Blocker>(
    `SELECT b.pid, a.usename AS "user", a.application_name AS name, a.state, ${isoTimeSql("a.state_change")} AS since
     FROM (SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids($1)) AS pid) AS b
     LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid ORDER BY b.pid`,
    [pid],
  );
  if (blockers.length === 0) return null;
  // A backend that waits for the transaction that has changed a row holds the lock of the row's version meanwhile.
  const { rows } = await client.query<Omit<LockWait, "blockers">>(
    `SELECT w.locktype AS type, w.mode, (
       SELECT r.relation::pg_catalog.regclass::text FROM pg_catalog.pg_locks AS r
       WHERE r.pid = w.pid AND r.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
         AND r.relation IS NOT NULL AND (NOT r.granted OR w.locktype = 'transactionid' AND r.locktype = 'tuple') LIMIT 1
     ) AS relation
     FROM pg_catalog.pg_locks AS w WHERE w.pid = $1 AND NOT w.granted LIMIT 1`,
    [pid],
  );
  return { ...(rows[0] ?? { type: null, mode: null, relation: null }), blockers };
}

/** Returns the reason of a running task whose run waits for a lock. */
export function lockReason({ id, start, owner }: Pick<TaskSituation, "id" | "start" | "owner">, wait: LockWait) {
  const [ownerPid = ""] = (owner ?? "").split(" ");
  return {
    code: "waits-for-lock",
    text: `it has been running since ${start ?? "a moment ago"} in server process ${ownerPid}, and waits for ${describeLockWait(wait)}`,
    remedy: `${describeUnblocking(wait)}; pg-task stop ${id} cancels the task`,
  } as const;
}

/** Says for which lock it waits, and who blocks it. */
function describeLockWait({ type, mode, relation, blockers }: LockWait): string {
  const shown = blockers.slice(0, maxShown).map(describeBlocker);
  const rest = blockers.length > maxShown ? [`${blockers.length - maxShown} more`] : [];
  return `${describeLock(type, mode, relation)}, blocked by ${[...shown, ...rest].join(", ")}`;
}

/** Says how the wait can be ended. */
function describeUnblocking({ blockers }: LockWait): string {
  const [first, ...others] = blockers.filter(({ pid }) => pid !== 0);
  if (first === undefined) return "COMMIT PREPARED or ROLLBACK PREPARED";
  const pid = others.length === 0 ? first.pid : "…";
  return `commit or roll back there, or end the session: SELECT pg_terminate_backend(${pid})`;
}

/** How many blockers are described at most. */
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

function describeBlocker({ pid, user, name, state, since }: Blocker): string {
  if (pid === 0) return "a prepared transaction (see pg_prepared_xacts)";
  if (user === null) return `server process ${pid}`;
  const activity =
    state === null
      ? "only members of pg_read_all_stats see what it does"
      : `${state} since ${since ?? "an unknown time"}`;
  return `server process ${pid} (${name === null || name === "" ? "no application name" : name}, user ${user}, ${activity})`;
}

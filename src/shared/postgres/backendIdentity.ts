import { PgTaskError } from "../errors.js";
import { type ConnectionTarget, describeTarget } from "./target/target.js";

/** Identity of a backend that runs tasks. Identities can only be compared for equality. */
export interface BackendIdentity {
  readonly pid: number;
  /** `PID BACKEND_START`, as stored in the column `owner`. */
  readonly owner: string;
}

/**
 * Returns the SQL expression for the string that identifies a backend: `PID BACKEND_START`, with the start time in UTC
 * with microseconds. The string is null if the role is not allowed to read `backend_start`. The manager and the
 * sessions compare these strings, so both must use this expression.
 *
 * @param alias alias of pg_catalog.pg_stat_activity in the query
 */
export function ownerSql(alias: string): string {
  const start = `pg_catalog.to_char(pg_catalog.timezone('UTC', ${alias}.backend_start), 'YYYY-MM-DD"T"HH24:MI:SS.US')`;
  return `${alias}.pid::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) ${start}`;
}

/**
 * SQL condition on a row of pg_stat_activity: the backend's role is that of this connection, a member of it, or a
 * superuser. Such a role can do all that this connection can.
 */
export const isTrustedSql = (alias: string): string => `pg_catalog.pg_has_role(${alias}.usesysid,
  (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) session_user), 'MEMBER')`;

/** SQL expression for the server's start time by its own clock. Identifies a running server. */
export const serverStartSql =
  "pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.pg_postmaster_start_time()), 'YYYY-MM-DD\"T\"HH24:MI:SS.US')";

/**
 * Returns an SQL condition that is true if a row of pg_stat_activity is the given backend, and not a later backend with
 * the same pid. The pid is not compared here, so the caller must also compare it. The condition is also true if the
 * start time of the backend cannot be read, so that such a backend is never treated as dead.
 *
 * @param owner SQL expression for the `PID BACKEND_START` of the wanted backend
 */
export function isOwnerSql(alias: string, owner: string): string {
  return `(${alias}.backend_start IS NULL OR ${ownerSql(alias)} OPERATOR(pg_catalog.=) ${owner})`;
}

/**
 * The error for a session that cannot see its own backend in pg_stat_activity: usually, its user's setting `role` selects a
 * role that lacks the privilege to see the backends of others.
 */
export function hiddenBackendError(
  target: ConnectionTarget,
  backend: { readonly pid: number; readonly user: string; readonly role: string | null },
): PgTaskError {
  const { pid, user, role } = backend;
  const remedy = role === null ? undefined : `ALTER ROLE ${user} RESET role, or GRANT pg_read_all_stats TO ${role}`;
  const why = remedy === undefined ? "" : `: the setting "role" of ${user} is ${role}, which may not see it; ${remedy}`;
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `expected to find backend ${pid} of ${describeTarget(target)} with its start in pg_stat_activity, found none${why}`,
    remedy === undefined ? {} : { remedy },
  );
}

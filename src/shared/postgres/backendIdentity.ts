import { PgTaskError } from "../errors.js";
import { type ConnectionTarget, describeTarget } from "./target/target.js";

export interface BackendIdentity {
  readonly pid: number;
  /** `PID BACKEND_START`, as stored in the column `owner`. */
  readonly owner: string;
}

/**
 * SQL expression for `PID BACKEND_START` (UTC, with microseconds) of the row `alias` of pg_stat_activity. Null if the
 * role may not read `backend_start`. Manager and sessions compare these strings, so both must use this expression.
 */
export function ownerSql(alias: string): string {
  const start = `pg_catalog.to_char(pg_catalog.timezone('UTC', ${alias}.backend_start), 'YYYY-MM-DD"T"HH24:MI:SS.US')`;
  return `${alias}.pid::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) ${start}`;
}

/** SQL condition on a row of pg_stat_activity: its role can do all that the role of this connection can. */
export const isTrustedSql = (alias: string): string => `pg_catalog.pg_has_role(${alias}.usesysid,
  (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) session_user), 'MEMBER')`;

/** SQL expression for the server's start time by its own clock, which identifies a running server. */
export const serverStartSql =
  "pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.pg_postmaster_start_time()), 'YYYY-MM-DD\"T\"HH24:MI:SS.US')";

/**
 * SQL condition: a row of pg_stat_activity is the backend `owner` (an SQL expression), and no later one with the same
 * pid, which the caller compares. Also true if the start time cannot be read, so that such a backend is never treated
 * as dead.
 */
export function isOwnerSql(alias: string, owner: string): string {
  return `(${alias}.backend_start IS NULL OR ${ownerSql(alias)} OPERATOR(pg_catalog.=) ${owner})`;
}

/** For a session that cannot see its own backend in pg_stat_activity, usually because of the setting `role`. */
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
    { remedy },
  );
}

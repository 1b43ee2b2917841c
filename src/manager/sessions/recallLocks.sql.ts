import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";

export interface RunLock {
  readonly pid: number;
  readonly lock: number;
}

/** Tries to take the advisory locks of these pipeline permits. Returns those that were taken. */
export async function takePermits(client: Client, permits: readonly number[]): Promise<ReadonlySet<number>> {
  const { rows } = await client.query<{ permit: number; taken: boolean }>({
    name: "take permits",
    text: `
SELECT p.permit, pg_try_advisory_lock(${lockClasses.permit}, p.permit) AS taken
FROM unnest($1::integer[]) AS p(permit)`,
    values: [permits],
  });
  return new Set(rows.flatMap(({ permit, taken }) => (taken ? permit : [])));
}

export async function revokePermits(client: Client, permits: readonly number[]): Promise<void> {
  await client.query({
    name: "revoke permits",
    text: `SELECT pg_advisory_unlock(${lockClasses.permit}, p.permit) FROM unnest($1::integer[]) AS p(permit)`,
    values: [permits],
  });
}

/** Tries to take the locks of these runs, so that they cannot begin. Returns those that were taken, as `keyOf` does. */
export async function takeRunLocks(client: Client, runs: readonly RunLock[]): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<RunLock & { readonly taken: boolean }>({
    name: "take run locks",
    text: `SELECT r.pid, r.lock, pg_try_advisory_lock(r.pid, r.lock) AS taken FROM unnest($1::integer[], $2::integer[]) AS r(pid, lock)`,
    values: [runs.map(({ pid }) => pid), runs.map(({ lock }) => lock)],
  });
  return new Set(rows.flatMap((row) => (row.taken ? keyOf(row.pid, row.lock) : [])));
}

/** Of runs whose locks were not taken, the server only says so. */
export async function releaseRunLocks(client: Client, runs: readonly RunLock[]): Promise<void> {
  await client.query({
    name: "release run locks",
    text: `SELECT pg_advisory_unlock(r.pid, r.lock) FROM unnest($1::integer[], $2::integer[]) AS r(pid, lock)`,
    values: [runs.map(({ pid }) => pid), runs.map(({ lock }) => lock)],
  });
}

/** Identifies a run by its backend and its lock. */
export const keyOf = (pid: number, lock: number | undefined): string => `${pid} ${lock}`;

export async function heldRunLocks(client: Client, pids: readonly number[]): Promise<RunLock[]> {
  const { rows } = await client.query<RunLock>({
    name: "held run locks",
    text: `
SELECT l.pid, l.objid::bigint::integer AS lock FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.pid = ANY ($1::integer[])
  AND l.classid::bigint = l.pid AND l.objid::bigint < 2147483648
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())`,
    values: [pids],
  });
  return rows;
}

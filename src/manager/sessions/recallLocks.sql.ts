import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";

/** The lock of a run that its server process holds from its beginning to its end. */
export interface RunLock {
  readonly pid: number;
  readonly lock: number;
}

/** Takes the locks of these permits for this session; those that somebody else has are not returned. */
export async function takePermits(
  client: Client,
  permits: readonly number[],
): Promise<ReadonlySet<number>> {
  const { rows } = await client.query<{ permit: number; taken: boolean }>({
    name: "take permits",
    text: `
SELECT p.permit, pg_try_advisory_lock(${lockClasses.permit}, p.permit) AS taken
FROM unnest($1::integer[]) AS p(permit)`,
    values: [permits],
  });
  return new Set(rows.flatMap(({ permit, taken }) => (taken ? permit : [])));
}

/** Gives up the locks of these permits. */
export async function revokePermits(client: Client, permits: readonly number[]): Promise<void> {
  await client.query({
    name: "revoke permits",
    text: `SELECT pg_advisory_unlock(${lockClasses.permit}, p.permit) FROM unnest($1::integer[]) AS p(permit)`,
    values: [permits],
  });
}

/** The locks of runs that these server processes hold. */
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

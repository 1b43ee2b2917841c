import { createHash } from "node:crypto";
import type { Entry } from "../shared/config/types.js";
import type { Client } from "../shared/postgres/client.js";
import { lockClasses } from "../shared/postgres/advisoryLocks.js";

/**
 * Returns a hash of the tables that a configuration names, as the second key of an advisory lock. Processes may reach
 * the control connection's server under different host names, so these are not part of the hash.
 */
export function hashEntries(entries: readonly Entry[]): number {
  const tables = entries.map(({ elsewhere, key, target, schema, table }) =>
    elsewhere ? key : JSON.stringify([target.database, schema, table]),
  );
  const digest = createHash("sha256").update(tables.toSorted().join("\n")).digest();
  return digest.readUInt32BE() >>> 1;
}

/** Makes the hash of the leader's entries visible to other processes, in place of the previous one. */
export async function publishEntries(leader: Client, hash: number, previous: number | null): Promise<void> {
  await leader.query("SELECT pg_try_advisory_lock_shared($1, $2)", [lockClasses.entries, hash]);
  if (previous === null) return;
  await leader.query("SELECT pg_advisory_unlock_shared($1, $2)", [lockClasses.entries, previous]);
}

/** Returns the hash of the leader's entries. Returns null if there is no leader, or if it has not published any yet. */
export async function readLeaderEntries(control: Client, name: string): Promise<number | null> {
  const { rows } = await control.query<{ hash: string }>(
    `SELECT e.objid::bigint AS hash FROM pg_catalog.pg_locks AS l
       JOIN pg_catalog.pg_locks AS e ON e.pid = l.pid AND e.database = l.database AND e.locktype = 'advisory'
         AND e.granted AND e.objsubid = 2 AND e.classid = $3::bigint::oid
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
        AND l.objid = hashtext($2)::bigint & 4294967295
        AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`,
    [lockClasses.supervisor, name, lockClasses.entries],
  );
  // While the leader replaces the hash, there are two.
  const [row] = rows.length === 1 ? rows : [];
  return row === undefined ? null : Number(row.hash);
}

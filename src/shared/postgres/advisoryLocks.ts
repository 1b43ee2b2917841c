import { createHash, getRandomValues } from "node:crypto";

/** The first of the two int4 keys of every advisory lock that pg-task takes: "pgt" in hexadecimal and a digit. */
export const lockClasses = {
  /** Held by the leader, in the control database. The second key is a hash of the cluster's name. */
  supervisor: 0x70677401,
  /** Held by the manager of a table: only its holder claims tasks. The second key is the table's oid. */
  manager: 0x70677402,
  /**
   * Held by a manager while it changes what no other may change at the same time. The second key is a hash of the
   * schema's name while a table of the schema is created or migrated, and the table's oid while dependencies between
   * tasks are changed. Should the two be equal by chance, one of them only waits for the other.
   */
  change: 0x70677403,
  /** Held by a manager in busy mode: writers then send no notifications. The second key is the table's oid. */
  busy: 0x70677404,
  /**
   * The pipeline permit of a session: the manager holds it while the session may start queued tasks. The second key is
   * random. While such a task runs, it also holds a lock, whose first key is the pid of the session's backend (see
   * manager/sessions/recalls.ts).
   */
  permit: 0x70677405,
  /** Held by a table's manager, shared, for each task whose result is rejected. Key: the lower half of its id. */
  rejectedResult: 0x70677408,
  /**
   * Held by the manager of a table, shared, while tasks wait because the server refuses new sessions. The second key is
   * the SQLSTATE of the refusal (see `sqlStateToLockKey`).
   */
  sessionsRefused: 0x70677409,
  /** As `sessionsRefused`, for each role whose tasks wait because no session of its own can be opened (`textLockKey`). */
  rolesRefused: 0x7067740b,
  /**
   * Held by each leader and standby, shared, in the control database, for its cluster's name and each of its entries.
   * The second key is a hash of the name or entry.
   */
  entries: 0x7067740a,
} as const;

/** Returns a SQLSTATE as the second key of an advisory lock. 0 stands for none. */
export const sqlStateToLockKey = (sqlState: string | undefined): number =>
  sqlState !== undefined && /^[0-9A-Z]{5}$/.test(sqlState) ? Number.parseInt(sqlState, 36) : 0;

export const lockKeyToSqlState = (key: number): string | null =>
  key === 0 ? null : key.toString(36).toUpperCase().padStart(5, "0");

/** Returns a hash of a text, such as the name of a role, as the second key of an advisory lock. */
export const textLockKey = (text: string): number => createHash("sha256").update(text).digest().readUInt32BE() >>> 1;

/** Maximum number of locks `rejectedResult` of a manager, because each takes a place in the server's memory. */
export const maxRejectedResultLocks = 100;

const pool = new Uint32Array(1024);
let remaining = 0;

/** Returns a random second key for an advisory lock, 1 to 2^31 - 1. A task that could guess it could take the lock. */
export function randomLockKey(): number {
  if (remaining === 0) {
    getRandomValues(pool);
    remaining = pool.length;
  }
  remaining -= 1;
  return Math.max(1, (pool[remaining] ?? 0) >>> 1);
}

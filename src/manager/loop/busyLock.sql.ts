import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";

/** A transaction, running or prepared, that has written to the table. */
export interface Writer {
  /** Identifies the transaction until it ends or is prepared. */
  readonly transaction: string;
  readonly prepared: boolean;
}

/**
 * Takes the lock of busy mode. While the manager holds this lock, writers do not notify.
 *
 * @returns false if a writer was just testing the lock; then nothing has changed and the caller retries
 */
export async function enterBusyMode(client: Client, tableOid: number): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>({
    name: "begin busy",
    text: "SELECT pg_try_advisory_lock($1, $2) AS locked",
    values: [lockClasses.busy, tableOid | 0],
  });
  return rows[0]?.locked === true;
}

/**
 * Releases the lock of busy mode, so that writers notify again. The writers that `readWriters` finds afterwards may
 * still have seen busy mode, and so may commit without notifying.
 */
export async function leaveBusyMode(client: Client, tableOid: number): Promise<void> {
  await client.query({
    name: "end busy",
    text: "SELECT pg_advisory_unlock($1, $2)",
    values: [lockClasses.busy, tableOid | 0],
  });
}

/**
 * Counts the writers to the table that wait until another transaction, of any database, has committed its notifications.
 * PostgreSQL has one lock for this: on class `pg_database`, object 0.
 */
export async function countWaitingNotifiers(client: Client, tableOid: number): Promise<number> {
  const { rows } = await client.query<{ waiting: number }>({
    name: "waiting notifiers",
    text: `
WITH l AS MATERIALIZED (SELECT locktype, database, relation, classid, objid, granted, pid FROM pg_locks)
SELECT count(*)::integer AS waiting FROM l
WHERE locktype = 'object' AND database = 0 AND classid = 'pg_database'::regclass AND objid = 0 AND NOT granted
  AND pid IN (
    SELECT pid FROM l
    WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation IN (SELECT $1::oid UNION ALL SELECT relid FROM pg_partition_tree($1::oid::regclass)))`,
    values: [tableOid],
  });
  return rows[0]?.waiting ?? 0;
}

/**
 * Lists the transactions that are writing to the table or to one of its partitions. Each of them has held its table
 * lock since before its triggers were called, and holds it until its rows are visible.
 */
export async function readWriters(client: Client, tableOid: number): Promise<Writer[]> {
  const { rows } = await client.query<Writer>({
    name: "writers",
    text: `
SELECT DISTINCT l.virtualtransaction AS transaction, l.pid IS NULL AS prepared
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.relation IN (SELECT $1::oid UNION ALL SELECT relid FROM pg_partition_tree($1::oid::regclass))`,
    values: [tableOid],
  });
  return rows;
}

import type { Client } from "../../shared/postgres/client.js";

export interface Writer {
  /** Identifies the transaction until it ends or is prepared. */
  readonly transaction: string;
  readonly prepared: boolean;
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

/** SQL condition on the row `l` of pg_locks: a transaction is writing to a table, or somebody has locked it against that. */
const isWriting = `l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

/** The oids of the tables for which `readWriters` would return transactions, of all that are not partitioned. */
export async function readWrittenTables(client: Client): Promise<ReadonlySet<number>> {
  const { rows } = await client.query<{ oid: number }>(
    `SELECT DISTINCT l.relation AS oid FROM pg_locks AS l WHERE ${isWriting}`,
  );
  return new Set(rows.map(({ oid }) => oid));
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
WHERE ${isWriting}
  AND l.relation IN (SELECT $1::oid UNION ALL SELECT relid FROM pg_partition_tree($1::oid::regclass))`,
    values: [tableOid],
  });
  return rows;
}

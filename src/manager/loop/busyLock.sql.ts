import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";

/** A transaction that has written to the table and has not ended. */
export interface Writer {
  /** Tells it from every other one for as long as it has not ended or been prepared. */
  readonly transaction: string;
  readonly prepared: boolean;
}

/** From now on writers do not notify. False when one of them is just looking whether to. */
export async function beginBusy(client: Client, tableOid: number): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>({
    name: "begin busy",
    text: "SELECT pg_try_advisory_lock($1, $2) AS locked",
    values: [lockClasses.busy, tableOid | 0],
  });
  return rows[0]?.locked === true;
}

/** From now on writers notify; what `writers` then finds may have seen that they need not. */
export async function endBusy(client: Client, tableOid: number): Promise<void> {
  await client.query({
    name: "end busy",
    text: "SELECT pg_advisory_unlock($1, $2)",
    values: [lockClasses.busy, tableOid | 0],
  });
}

/**
 * Who writes to the table or a partition of it now. A transaction holds its lock from before its
 * triggers are called until its rows can be seen.
 */
export async function writers(client: Client, tableOid: number): Promise<Writer[]> {
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

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { literal } from "../../shared/postgres/quoting.js";
import { scanForIds } from "./scanForIds.js";

/**
 * SQL of the lower halves of the ids of the tasks whose results the server rejects, as the table's manager shows them by
 * its locks (src/manager/results/rejectedResultLocks.sql.ts).
 */
const rejectedKeysSql = ({ qualified }: TaskTable): string => `SELECT r.objid::bigint
  FROM pg_catalog.pg_locks AS m JOIN pg_catalog.pg_locks AS r ON r.pid = m.pid AND r.database = m.database
  WHERE m.locktype = 'advisory' AND m.granted AND m.objsubid = 2 AND m.classid = ${lockClasses.manager}::bigint::oid
    AND m.objid = to_regclass(${literal(qualified)})::oid
    AND m.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND r.locktype = 'advisory' AND r.granted AND r.objsubid = 2 AND r.classid = ${lockClasses.rejectedResult}::bigint::oid`;

/** SQL condition that is true if the run of a claimed task has ended and the server rejects its result. */
export const isRejectedSql = (table: TaskTable, row: string): string =>
  `${row}.owner IS NOT NULL AND (${row}.id::bigint & 4294967295) IN (${rejectedKeysSql(table)})`;

/**
 * Returns the ids of up to five tasks whose runs have ended and whose results the server rejects.
 *
 * @returns null if there are such tasks, and scanning the table for them takes more than five seconds
 */
export async function readRejectedIds(client: Client, table: TaskTable): Promise<readonly string[] | null> {
  const { rowCount } = await client.query(rejectedKeysSql(table));
  return rowCount === 0 ? [] : await scanForIds(client, table, isRejectedSql(table, "t"));
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { lockClasses, maxRejectedResultLocks } from "../../shared/postgres/advisoryLocks.js";
import { literal } from "../../shared/postgres/quoting.js";
import { maxIds, scanForIds } from "./scanForIds.js";

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

/** SQL condition: the manager shows as many rejected results as it can, so there may be others. */
export const areMoreRejectedSql = (table: TaskTable): string =>
  `(SELECT count(*) FROM (${rejectedKeysSql(table)}) AS r) >= ${maxRejectedResultLocks}`;

/** The tasks whose runs have ended and whose results the server rejects. */
interface RejectedResults {
  /** The ids of up to five of them. Null if scanning the table for them takes more than five seconds. */
  readonly ids: readonly string[] | null;
  /** How many others the manager shows. 0 if `ids` is null. */
  readonly others: number;
  /** Whether there may be more than that, because the manager shows as many as it can. */
  readonly more: boolean;
}

export async function readRejectedResults(client: Client, table: TaskTable): Promise<RejectedResults> {
  const { rows } = await client.query(rejectedKeysSql(table));
  const ids = rows.length === 0 ? [] : await scanForIds(client, table, isRejectedSql(table, "t"));
  const others = ids?.length === maxIds ? rows.length - maxIds : 0;
  return { ids, others, more: rows.length >= maxRejectedResultLocks };
}

/** Whether the server may reject the results of tasks that the manager does not show. */
export async function areMoreRejected(client: Client, table: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ more: boolean }>(`SELECT ${areMoreRejectedSql(table)} AS more`);
  return rows[0]?.more === true;
}

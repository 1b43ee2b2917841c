import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { literal } from "../../shared/postgres/quoting.js";

/** Maximum number of ids that are returned. */
const maxIds = 5;

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

/** Returns the ids of up to five tasks whose runs have ended and whose results the server rejects. */
export async function readRejectedIds(client: Client, table: TaskTable): Promise<readonly string[]> {
  const { qualified } = table;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM (${rejectedKeysSql(table)}) AS l(key)
     CROSS JOIN LATERAL generate_series(0, (SELECT max(id)::bigint FROM ${qualified}) >> 32) AS upper(half)
     JOIN ${qualified} AS t ON t.id = (upper.half << 32) + l.key
     WHERE t.owner IS NOT NULL ORDER BY t.id LIMIT ${maxIds}`,
  );
  return rows.map(({ id }) => id);
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Queryable } from "../../shared/postgres/client.js";

/** SQL of a query for the id of the task that waits with a key. Its condition is that of the index of keys. */
export const keyHolderQuery = ({ qualified }: TaskTable, key: string): string =>
  `SELECT w.id FROM ${qualified} AS w WHERE w.key OPERATOR(pg_catalog.=) ${key} AND w.key IS NOT NULL AND w.ready IS NOT NULL LIMIT 1`;

/**
 * Returns the id of the task that waits with a key. Null if there is none, or if the current user may not read it. The
 * table must have keys.
 */
export async function readKeyHolder(client: Queryable, table: TaskTable, key: string): Promise<string | null> {
  try {
    const { rows } = await client.query<{ id: string }>(
      `SELECT id::pg_catalog.text FROM (${keyHolderQuery(table, "$1::pg_catalog.text")}) AS holder`,
      [key],
    );
    return rows[0]?.id ?? null;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  }
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Queryable } from "../../shared/postgres/client.js";

/**
 * Returns the id of the task that waits with a key. Null if there is none, or if the current user may not read it. The
 * table must have keys.
 */
export async function readKeyHolder(client: Queryable, { qualified }: TaskTable, key: string): Promise<string | null> {
  try {
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id::text AS id FROM ${qualified} AS t
       WHERE t.key = $1::text AND t.key IS NOT NULL AND t.ready IS NOT NULL LIMIT 1`,
      [key],
    );
    return rows[0]?.id ?? null;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  }
}

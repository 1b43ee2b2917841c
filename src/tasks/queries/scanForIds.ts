import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";

/** Time limit, in ms. No index covers claimed tasks, so the table is scanned. */
const timeoutMs = 5_000;
/** Maximum number of ids that are returned. */
export const maxIds = 5;

/**
 * Returns the ids of up to five rows `t` of the table for which the SQL condition is true.
 *
 * @returns null if scanning the table takes more than five seconds
 */
export async function scanForIds(
  client: Client,
  { qualified }: TaskTable,
  condition: string,
): Promise<readonly string[] | null> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL statement_timeout = ${timeoutMs}`);
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id::text AS id FROM ${qualified} AS t WHERE ${condition} LIMIT ${maxIds}`,
    );
    return rows.map(({ id }) => id);
  } catch (error) {
    if (sqlState(error) === queryCanceled) return null;
    throw error;
  } finally {
    await client.query("ROLLBACK");
  }
}

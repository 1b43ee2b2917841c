import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";
import { isRejectedSql } from "./rejectedResults.js";

/** Time limit for scanning the table, in ms. The table is scanned because no index covers running tasks. */
const timeoutMs = 5_000;
/** Maximum number of ids that are returned. */
const maxIds = 5;

/**
 * Returns the ids of up to five orphans: tasks in TAKE or WORK that have no owner, or whose owner (the backend for
 * which the task was claimed) is dead. Remote tasks with an owner are left out, because only their remote server can
 * tell whether they still run. Tasks whose results the server rejects are left out as well, because they are not
 * rescued.
 *
 * @returns null if scanning the table takes more than five seconds.
 */
export async function readOrphanIds(client: Client, table: TaskTable): Promise<readonly string[] | null> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL statement_timeout = ${timeoutMs}`);
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id::text AS id FROM ${table.qualified} AS t
       WHERE t.state::text IN ('TAKE', 'WORK') AND CASE WHEN t.owner IS NULL THEN true ELSE t.remote IS NULL
         AND split_part(t.owner::text, ' ', 1) <> ALL (ARRAY(SELECT pid::text FROM pg_catalog.pg_stat_activity)) END
         AND (${isRejectedSql(table, "t")}) IS NOT TRUE
       LIMIT ${maxIds}`,
    );
    return rows.map(({ id }) => id);
  } catch (error) {
    if (sqlState(error) === queryCanceled) return null;
    throw error;
  } finally {
    await client.query("ROLLBACK");
  }
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { isRejectedSql } from "./rejectedResults.js";
import { scanForIds } from "./scanForIds.js";

/**
 * Returns the ids of up to five orphans: tasks in TAKE or WORK that have no owner, or whose owner (the backend for
 * which the task was claimed) is dead. Remote tasks with an owner are left out, because only their remote server can
 * tell whether they still run. Tasks whose results the server rejects are left out as well, because they are not
 * rescued.
 *
 * @returns null if scanning the table takes more than five seconds
 */
export async function readOrphanIds(client: Client, table: TaskTable): Promise<readonly string[] | null> {
  return await scanForIds(
    client,
    table,
    `t.state::text IN ('TAKE', 'WORK') AND CASE WHEN t.owner IS NULL THEN true ELSE t.remote IS NULL
       AND split_part(t.owner::text, ' ', 1) <> ALL (ARRAY(SELECT pid::text FROM pg_catalog.pg_stat_activity)) END
     AND (${isRejectedSql(table, "t")}) IS NOT TRUE`,
  );
}

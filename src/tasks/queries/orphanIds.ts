import type { TaskTable } from "../../manager/schema/taskTable.js";
import { mayServeSql } from "../../shared/postgres/ownerBackends.js";
import type { Client } from "../../shared/postgres/client.js";
import { isRejectedSql } from "./rejectedResults.js";
import { scanForIds } from "./scanForIds.js";

/** A task in TAKE or WORK without a session. */
export interface Orphan {
  readonly id: string;
  /** Whether a session has owned it. Managers release only those that one has. */
  readonly owned: boolean;
}

/**
 * Returns up to five orphans: tasks in TAKE or WORK that have no owner, or whose owner (the backend for
 * which the task was claimed) is dead. Remote tasks with an owner are left out, because only their remote server can
 * tell whether they still run. Tasks whose results the server rejects are left out as well, because they are not
 * rescued.
 *
 * @returns null if scanning the table takes more than five seconds
 */
export async function readOrphans(client: Client, table: TaskTable): Promise<readonly Orphan[] | null> {
  const ids = await scanForIds(
    client,
    table,
    `t.state::text IN ('TAKE', 'WORK') AND CASE WHEN t.owner IS NULL THEN true ELSE t.remote IS NULL
       AND split_part(t.owner::text, ' ', 1) <> ALL (ARRAY(SELECT a.pid::text FROM pg_catalog.pg_stat_activity AS a WHERE ${mayServeSql("a", table)})) END
     AND (${isRejectedSql(table, "t")}) IS NOT TRUE`,
  );
  if (ids === null) return null;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM ${table.qualified} AS t
     WHERE t.id = ANY ($1::bigint[]) AND t.owner IS NULL AND t.state::text IN ('TAKE', 'WORK')`,
    [ids],
  );
  return ids.map((id) => ({ id, owned: !rows.some((row) => row.id === id) }));
}

import { isDeepStrictEqual } from "node:util";
import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { byId } from "../sql/byId.js";
import {
  claimedColumns,
  toTask,
  type ClaimedRow,
  type ClaimedTask,
} from "../claim/claimedTask.sql.js";
import { groupPaused } from "../sql/head.js";

/** The row of a task as it is now; all of it is null where the session has the task no more. */
type ChangedRow = { readonly asked: string; readonly wanted: boolean } & ClaimedRow;

/**
 * Ids of those of the claimed tasks, which have not begun, that are not to begin as they were claimed: stopped,
 * deleted, planned anew, paused, or changed in anything that their run goes by.
 */
export async function changedTasks(
  client: Client,
  table: TaskTable,
  tasks: readonly ClaimedTask[],
): Promise<string[]> {
  const { rows } = await client.query<ChangedRow>({
    name: "changed tasks",
    text: statement(table),
    values: [
      tasks.map(({ id }) => id),
      tasks.map(({ owner }) => owner),
      tasks.map(({ version }) => version),
    ],
  });
  const claimed = new Map(tasks.map((task) => [task.id, task]));
  return rows.flatMap((row) => {
    const task = claimed.get(row.asked);
    return row.wanted && task !== undefined && isSame(task, toTask(row)) ? [] : [row.asked];
  });
}

/** Whether a run of the one does what one of the other does. */
function isSame(claimed: ClaimedTask, now: ClaimedTask): boolean {
  const { front, data, version } = claimed;
  return isDeepStrictEqual(claimed, { ...now, front, data, version });
}

/** Only rows that somebody has changed, or may have deleted, are sent as a whole. */
function statement(table: TaskTable): string {
  return `
SELECT r.id::text AS asked, coalesce(c.wanted, false) AS wanted, c.*
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS r(id, owner, version)
LEFT JOIN LATERAL (
  SELECT t.state::text = 'TAKE' AND t.plan <= now() AND NOT ${groupPaused(table, "t")} AS wanted,
    ${claimedColumns("g", false)}
  FROM ${table.qualified} AS t, (SELECT false AS front) AS g
  WHERE ${byId("r.id")} AND t.owner = r.owner
) AS c ON true
WHERE c.wanted IS NOT TRUE OR c.version <> r.version`;
}

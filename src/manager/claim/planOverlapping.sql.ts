import type { Client } from "../../shared/postgres/client.js";
import type { OwnedTask } from "../model/tasks.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isOverlapping, isSeen } from "../sql/fragments.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";

/**
 * Moves the schedules of claimed tasks with `overlap` to their successors, in one statement, before the tasks are handed
 * to their sessions. If the manager dies, either the task or its successor has the schedule.
 *
 * A row that is locked or has just been changed, or any row if the table's columns have changed since `columns` was read,
 * keeps its schedule. Its successor is then planned when the run ends.
 */
export async function planOverlapping(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  tasks: readonly OwnedTask[],
): Promise<void> {
  await client.query({
    name: `plan overlapping ${columns.name}`,
    text: `
WITH started AS MATERIALIZED (
  SELECT l.id, now() AS stop, 'WORK' AS outcome FROM (
    SELECT id, ctid AS version FROM ${table.qualified}
    WHERE id = ANY ($1::bigint[]) AND owner = ANY ($2::text[]) AND state::text IN ('TAKE', 'WORK')
      AND ${isOverlapping()} AND ${columnsUnchanged(table, columns)}
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE ${isSeen(table)}
), ${successorCtes(table, columns, "started")}
UPDATE ${table.qualified} SET rule = NULL, zone = NULL, repeat = interval '0' WHERE id = ANY (ARRAY(SELECT id FROM started))`,
    values: [tasks.map(({ id }) => id), tasks.map(({ owner }) => owner)],
  });
}

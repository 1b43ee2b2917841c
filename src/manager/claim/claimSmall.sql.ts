import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { assigned, claimedColumns, toTask, unflushed, type ClaimedRow } from "./claimedTask.sql.js";
import { deferredIds } from "../sql/pauseGroup.sql.js";
import type { ClaimedTask } from "../model.js";
import { hasGap, isGroupPaused, isLate, isNotIn, isReady, maxOthers } from "../sql/fragments.sql.js";

/**
 * Single claim: gives the only due task of the table to the session, without knowing the task's group. It is meant for
 * times when nothing runs.
 *
 * @param request.except ids of tasks to skip
 * @param request.traced whether to return the column `data`
 * @returns null if no task or more than one task is due, or if the only due task is late, paused or locked, or
 *   has a gap
 */
export async function claimSingle(
  client: Client,
  table: TaskTable,
  request: {
    readonly session: BackendIdentity;
    readonly except: readonly string[];
    readonly traced: boolean;
  },
): Promise<ClaimedTask | null> {
  const { owner, pid } = request.session;
  const { rows } = await client.query<ClaimedRow>({
    name: request.traced ? "claim single traced" : "claim single",
    text: claimSingleStatement(table, request.traced),
    values: [owner, pid, request.except],
  });
  const [row] = rows;
  return row === undefined ? null : toTask(row);
}

/**
 * Builds the statement. Its ORDER BY is the order of the index of due tasks. Any other index would need a sort, so the
 * planner uses that index, however few rows it expects.
 */
function claimSingleStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  return `
WITH due AS MATERIALIZED (
  SELECT id, "group", ${isLate(table)} OR ${hasGap(table)} AS needs_full FROM ${qualified}
  WHERE ready AND hash >= -2147483648 AND plan <= now() AND ${isNotIn("id", "$3")} AND id <> ALL (${deferredIds})
  ORDER BY hash, ${maxOthers} DESC, id LIMIT 2
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(
      SELECT id FROM due AS d WHERE NOT d.needs_full AND NOT ${isGroupPaused(table, "d")} AND (SELECT count(*) FROM due) = 1
    )) AND ${isReady} AND state::text = 'PLAN' AND plan <= now()
  FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
  UPDATE ${qualified} AS t SET ${assigned(table, "g")}
  FROM (SELECT $1::text AS owner, $2::integer AS pid, true AS starts_now) AS g
  WHERE t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING ${claimedColumns(table, "g", traced)}
)
SELECT * FROM claimed WHERE (SELECT ${unflushed} FROM claimed) IS NOT NULL`;
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf, isReady } from "../sql/byId.js";
import type { ClaimingSession } from "./claimFull.sql.js";
import {
  assigned,
  claimedColumns,
  toTask,
  unflushed,
  type ClaimedRow,
  type ClaimedTask,
} from "./claimedTask.sql.js";
import { beside, groupPaused } from "../sql/head.js";
import { heldBack } from "../sql/pauseGroup.sql.js";
import { tooLate } from "../sql/tooLate.js";

/**
 * Gives the session the task that is due when there is a single one, while nothing runs: a claim that
 * need not be told what is due, and has nothing to compare. Null when there is none, or several, or it
 * may not start, or somebody has locked it: a look and a claim have to find that out.
 *
 * @param request.except tasks not to look at this time.
 * @param request.traced whether `data` is wanted.
 */
export async function claimSingle(
  client: Client,
  table: TaskTable,
  request: {
    readonly session: ClaimingSession;
    readonly except: readonly string[];
    readonly traced: boolean;
  },
): Promise<ClaimedTask | null> {
  const { owner, pid } = request.session;
  const { rows } = await client.query<ClaimedRow>({
    name: request.traced ? "claim sole traced" : "claim sole",
    text: claimSoleStatement(table, request.traced),
    values: [owner, pid, request.except],
  });
  const [row] = rows;
  return row === undefined ? null : toTask(row);
}

/** The order is the index's, so that only that one serves, however few rows the planner believes there are. */
function claimSoleStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  return `
WITH due AS MATERIALIZED (
  SELECT id, "group", ${tooLate} AS gone FROM ${qualified}
  WHERE ready AND hash >= -2147483648 AND plan <= now() AND ${isNoneOf("id", "$3")} AND id <> ALL (${heldBack})
  ORDER BY hash, ${beside} DESC, id LIMIT 2
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(
      SELECT id FROM due AS d WHERE NOT d.gone AND NOT ${groupPaused(table, "d")} AND (SELECT count(*) FROM due) = 1
    )) AND ${isReady} AND state::text = 'PLAN' AND plan <= now()
  FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
  UPDATE ${qualified} AS t SET ${assigned(table, "g")}
  FROM (SELECT $1::text AS owner, $2::integer AS pid, true AS front) AS g
  WHERE t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING ${claimedColumns("g", traced)}
)
SELECT * FROM claimed WHERE (SELECT ${unflushed} FROM claimed) IS NOT NULL`;
}

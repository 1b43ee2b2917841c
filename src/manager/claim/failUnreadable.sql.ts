import { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isReady } from "../sql/byId.js";
import { claimedColumns } from "./claimedTask.sql.js";
import { planRepeat } from "../sql/planRepeat.sql.js";
import { withNote } from "../results/withoutRepeat.sql.js";
import { tooLate } from "../sql/tooLate.js";

/** Of a text that has other bytes than its encoding has, or than ours has. */
const unreadable = new Set(["22021", "22P05"]);

/** Whether the server could not tell a text. */
export const isUnreadable = (error: unknown): error is DatabaseError =>
  error instanceof DatabaseError && unreadable.has(error.code ?? "");

/**
 * Reads what claims read of these tasks: not of those that are late, or whose row somebody has locked.
 *
 * @throws what claims throw where one of the texts cannot be told.
 */
export async function readTexts(
  client: Client,
  { qualified }: TaskTable,
  ids: readonly string[],
  traced: boolean,
): Promise<void> {
  await client.query({
    name: traced ? "read texts traced" : "read texts",
    text: `
SELECT ${claimedColumns("g", traced)} FROM ${qualified} AS t, (SELECT false AS front) AS g
WHERE t.id = ANY ($1::bigint[]) AND ${isReady} AND NOT (${tooLate}) FOR NO KEY UPDATE OF t SKIP LOCKED`,
    values: [ids],
  });
}

/**
 * Ends a due task whose texts the server cannot tell as FAIL; one that repeats is planned again.
 *
 * @param unrepeated where that was refused: what its `error` says of it, and it is not planned again.
 */
export async function failUnreadable(
  client: Client,
  table: TaskTable,
  shape: ColumnSet,
  task: { readonly id: string; readonly reason: string },
  unrepeated: string | null = null,
): Promise<void> {
  await client.query({
    name: `fail unreadable ${shape.name}`,
    text: `
WITH locked AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = $1 AND ${isReady} AND state::text = 'PLAN'
  FOR NO KEY UPDATE SKIP LOCKED
), failed AS (
  UPDATE ${table.qualified}
  SET state = 'FAIL', ready = NULL, start = now(), stop = now(), output = '',
    error = ${withNote("$2::text", "CASE WHEN repeat > interval '0' THEN $3::text END")}
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop
), again AS (
  SELECT id, stop FROM failed WHERE $3::text IS NULL
), repeated AS (${planRepeat(table, shape, "again")}
)
SELECT id FROM failed`,
    values: [task.id, `ERROR:  task is not readable as UTF-8: ${task.reason}`, unrepeated],
  });
}

import { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { characterNotInRepertoire, untranslatableCharacter } from "../../shared/postgres/sqlStates.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { claimedColumns } from "../sql/claimedTask.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { appendNote, owedCte } from "../sql/omissions.js";
import { isReady, isRepeating, isSeen } from "../sql/fragments.sql.js";
import { isLate } from "../schema/startRule.sql.js";

/**
 * SQLSTATEs of the errors about a text that the server cannot send, because the text's bytes are invalid in their
 * encoding or because the client's encoding lacks one of its characters.
 */
const unreadable: ReadonlySet<string> = new Set([characterNotInRepertoire, untranslatableCharacter]);

/** Returns whether the error means that the server could not send a value of type text. */
export const isUnreadable = (error: unknown): error is DatabaseError =>
  error instanceof DatabaseError && unreadable.has(error.code ?? "");

/**
 * Reads the same columns of these tasks as a claim does. Late tasks and tasks with locked rows are left out.
 *
 * @throws the same error as a claim if one of the values is unreadable
 */
export async function readTexts(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
  traced: boolean,
): Promise<void> {
  await client.query({
    name: traced ? "read texts traced" : "read texts",
    text: `
SELECT ${claimedColumns(table, "g", traced)} FROM ${table.qualified} AS t, (SELECT false AS starts_now) AS g
WHERE t.id = ANY ($1::bigint[]) AND ${isReady} AND NOT (${isLate()}) FOR NO KEY UPDATE OF t SKIP LOCKED`,
    values: [ids],
  });
}

/**
 * Ends a due task with unreadable values as FAIL. If the task repeats, its successor is inserted, unless it has just
 * been changed, or the columns of the table have changed since `columnSet` was read. Then the row is left as it is.
 *
 * @param unrepeated if null, the successor is inserted; otherwise it is owed, because the server has rejected it, and
 *   this note is written to the column `error`
 */
export async function failUnreadable(
  client: Client,
  table: TaskTable,
  columnSet: ColumnSet,
  task: { readonly id: string; readonly reason: string },
  unrepeated: string | null = null,
): Promise<void> {
  await client.query({
    name: `fail unreadable ${unrepeated === null ? "" : "owed "}${columnSet.name}`,
    text: `
WITH locked AS MATERIALIZED (
  SELECT l.id FROM (
    SELECT id, ctid AS version, ${isRepeating()} AS repeats FROM ${table.qualified}
    WHERE id = $1 AND ${isReady} AND state::text = 'PLAN'
      AND (NOT ${isRepeating()} OR ${columnsUnchanged(table, columnSet)})
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.repeats OR ${isSeen(table, "l")}
), failed AS (
  UPDATE ${table.qualified}
  SET state = 'FAIL', ready = NULL, start = now(), stop = now(), output = '',
    error = ${appendNote("$2::text", `CASE WHEN ${isRepeating()} THEN $3::text END`)}
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop, ${isRepeating()} AS repeats
), again AS (
  SELECT id, stop, 'FAIL' AS outcome FROM failed WHERE $3::text IS NULL
), ${successorCtes(table, columnSet, "again")}${owedCte(table, unrepeated, "SELECT id FROM failed WHERE repeats")}
SELECT id FROM failed`,
    values: [task.id, `ERROR:  task is not readable as UTF-8: ${task.reason}`, unrepeated],
  });
}

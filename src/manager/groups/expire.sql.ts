import type { Client } from "../../shared/postgres/client.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { appendNote, owedCte } from "../sql/omissions.js";
import { isReady, isRepeating, isSeen } from "../sql/fragments.sql.js";
import { isGroupPaused, isLate, isNotIn, maxOthers } from "../schema/startRule.sql.js";

/**
 * Reads the ids of late tasks. It looks at the first `limit` due tasks of each of these groups and returns at most
 * `limit` ids in all. Tasks of paused groups are left out, because they expire when the pause ends. Their names can have
 * the same hash as those of groups that are not paused.
 *
 * @param except ids of tasks to skip
 */
export async function readLate(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  limit: number,
  except: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "late tasks",
    text: `
SELECT d.id::text AS id FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (
  SELECT id, "group", ${isLate()} AS late FROM ${table.qualified}
  WHERE ready AND hash = ANY (ARRAY[g.hash]) AND ${isNotIn("id", "$3")}
  ORDER BY hash, ${maxOthers} DESC, id LIMIT $2
) AS d WHERE d.late AND NOT ${isGroupPaused(table, "d")} LIMIT $2`,
    values: [hashes, limit, except],
  });
  return rows.map(({ id }) => id);
}

/** SQL of the error of an expired task. If the task was tried before, the last error becomes the DETAIL. */
const notActive = `concat('ERROR:  task not active', CASE WHEN attempt > 0 THEN E'\\nDETAIL:  ' || replace(error, E'\\n', E'\\n\\t') END)`;

/**
 * Expires the given tasks that are still due and late. If such a task repeats, its successor is inserted. Locked rows
 * are skipped. So are repeating tasks that have just been changed. If the columns of the table have changed since
 * `columnSet` was read, all repeating tasks are skipped, because their successors would lack the new columns.
 *
 * @param unrepeated if null, successors are inserted; otherwise they are owed, because the server has rejected them, and
 *   this note is written to the column `error`
 * @returns the ids of the expired tasks
 */
export async function expire(
  client: Client,
  table: TaskTable,
  columnSet: ColumnSet,
  ids: readonly string[],
  unrepeated: string | null = null,
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: `expire ${unrepeated === null ? "" : "owed "}${columnSet.name}`,
    text: `
WITH locked AS MATERIALIZED (
  SELECT l.id FROM (
    SELECT id, ctid AS version, ${isRepeating()} AS repeats FROM ${table.qualified}
    WHERE id = ANY ($1::bigint[]) AND ${isReady} AND state::text = 'PLAN' AND ${isLate()}
      AND (NOT ${isRepeating()} OR ${columnsUnchanged(table, columnSet)})
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.repeats OR ${isSeen(table, "l")}
), expired AS (
  UPDATE ${table.qualified}
  SET state = 'GONE', ready = NULL, start = now(), stop = now(),
    error = ${appendNote(notActive, `CASE WHEN ${isRepeating()} THEN $2::text END`)}
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop, ${isRepeating()} AS repeats
), again AS (
  SELECT id, stop, 'GONE' AS outcome FROM expired WHERE $2::text IS NULL
), ${successorCtes(table, columnSet, "again")}${owedCte(table, unrepeated, "SELECT id FROM expired WHERE repeats")}
SELECT id::text AS id FROM expired`,
    values: [ids, unrepeated],
  });
  return rows.map(({ id }) => id);
}

import type { Client } from "../../shared/postgres/client.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import { isGroupPaused, isLate, isNotIn, maxOthers } from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isReady, isRepeating, isSeen } from "../sql/fragments.sql.js";
import { countedGroup, countFailures } from "../sql/groupFailures.sql.js";
import { tellEnds } from "../sql/tellEnds.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { appendNote, owedCte } from "../sql/omissions.js";

/**
 * Reads the ids of at most `limit` late tasks among the first due tasks of these groups. Those of paused groups, whose
 * names can have the same hash as others, expire when the pause ends.
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
const notActive = `concat('ERROR:  ', CASE WHEN deadline <= now() THEN 'the time limit of its chain is over' ELSE 'task not active' END, CASE WHEN attempt > 0 THEN E'\\nDETAIL:  ' || replace(error, E'\\n', E'\\n\\t') END)`;

/**
 * Ends due tasks that cannot run, and inserts the successors of those that repeat: late tasks become GONE, and others,
 * such as those that cannot be read, become FAIL. Skips locked rows, tasks that are no longer due or late, repeating tasks that have just
 * been changed, and all repeating tasks if the table's columns have changed since `columnSet` was read.
 *
 * @param failed the error of the tasks, which become FAIL. Null if they are late.
 * @param unrepeated if null, successors are inserted; otherwise they are owed, because the server has rejected them, and
 *   this note is written to the column `error`
 * @returns the ids of the ended tasks
 */
export async function endUnrun(
  client: Client,
  table: TaskTable,
  columnSet: ColumnSet,
  ids: readonly string[],
  { failed = null, unrepeated = null }: { failed?: string | null; unrepeated?: string | null } = {},
): Promise<string[]> {
  const [name, state, condition, set, error] =
    failed === null
      ? ["expire", "GONE", ` AND ${isLate()}`, "", notActive]
      : ["fail unrun", "FAIL", "", "output = '', ", "$3::text"];
  const { rows } = await client.query<{ id: string }>({
    name: `${name} ${unrepeated === null ? "" : "owed "}${columnSet.name}`,
    text: `
WITH locked AS MATERIALIZED (
  SELECT l.id FROM (
    SELECT id, ctid AS version, ${isRepeating()} AS repeats FROM ${table.qualified}
    WHERE id = ANY ($1::bigint[]) AND ${isReady} AND state::text = 'PLAN'${condition}
      AND (NOT ${isRepeating()} OR ${columnsUnchanged(table, columnSet)})
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.repeats OR ${isSeen(table)}
), ended AS (
  UPDATE ${table.qualified} AS t
  SET state = '${state}', ready = NULL, start = now(), stop = now(), ${set}
    error = ${appendNote(error, `CASE WHEN ${isRepeating()} THEN $2::text END`)}
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop, ${isRepeating()} AS repeats, suspend, tell, ${countedGroup(table)} AS counted
), again AS (
  SELECT id, stop, '${state}' AS outcome FROM ended WHERE $2::text IS NULL
), ${successorCtes(table, columnSet, "again")}${owedCte(table, unrepeated, "SELECT id FROM ended WHERE repeats")}
SELECT id::text AS id FROM ended UNION ALL SELECT id::text FROM (${tellEnds(`SELECT id, stop, tell, '${state}' AS outcome FROM ended`)}) AS n${failed === null ? "" : ` UNION ALL SELECT id::text FROM (${countFailures(table, "SELECT id, stop, true AS failed, suspend, tell, counted FROM ended")}) AS n`}`,
    values: [ids, unrepeated, ...(failed === null ? [] : [failed])],
  });
  return rows.map(({ id }) => id);
}

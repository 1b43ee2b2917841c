import type { Client } from "../../shared/postgres/client.js";
import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf, isReady } from "../sql/byId.js";
import { beside } from "../sql/head.js";
import { planRepeat } from "../sql/planRepeat.sql.js";
import { withNote } from "../results/withoutRepeat.sql.js";
import { tooLate } from "../sql/tooLate.js";

/**
 * Due tasks that are no longer worth running: of each of these groups those among its first `limit` due
 * tasks, at most `limit` in all.
 *
 * @param except tasks not to look at this time.
 */
export async function overdueCondition(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  limit: number,
  except: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "late",
    text: `
SELECT d.id::text AS id FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (
  SELECT id, ${tooLate} AS gone FROM ${table.qualified}
  WHERE ready AND hash = ANY (ARRAY[g.hash]) AND ${isNoneOf("id", "$3")}
  ORDER BY hash, ${beside} DESC, id LIMIT $2
) AS d WHERE d.gone LIMIT $2`,
    values: [hashes, limit, except],
  });
  return rows.map(({ id }) => id);
}

/**
 * Ends those of these tasks that are due and no longer worth running as GONE; those that repeat are
 * planned again. Rows that somebody has locked are passed over.
 *
 * @param unrepeated where that was refused: what their `error` says of it, and they are not planned again.
 * @returns the ids of those that were ended.
 */
export async function expire(
  client: Client,
  table: TaskTable,
  shape: ColumnSet,
  ids: readonly string[],
  unrepeated: string | null = null,
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: `expire ${shape.name}`,
    text: `
WITH locked AS MATERIALIZED (
  SELECT id FROM ${table.qualified}
  WHERE id = ANY ($1::bigint[]) AND ${isReady} AND state::text = 'PLAN' AND ${tooLate}
  FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
  UPDATE ${table.qualified}
  SET state = 'GONE', ready = NULL, start = now(), stop = now(),
    error = ${withNote("'ERROR:  task not active'", "CASE WHEN repeat > interval '0' THEN $2::text END")}
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop
), again AS (
  SELECT id, stop FROM gone WHERE $2::text IS NULL
), repeated AS (${planRepeat(table, shape, "again")}
)
SELECT id::text AS id FROM gone`,
    values: [ids, unrepeated],
  });
  return rows.map(({ id }) => id);
}

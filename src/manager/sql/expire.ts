import type { Client } from "../../shared/database.js";
import type { Shape } from "../shape.js";
import type { TaskTable } from "../table.js";
import { isReady } from "./byId.js";
import { beside } from "./head.js";
import { repeatInsert } from "./repeat.js";
import { tooLate } from "./tooLate.js";

/**
 * Ends due tasks that are no longer worth running as GONE: of each of these groups those among its
 * first `limit` due tasks, at most `limit` in all; those that repeat are planned again.
 *
 * @returns how many.
 */
export async function expire(
  client: Client,
  table: TaskTable,
  shape: Shape,
  hashes: readonly number[],
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query({
    name: `expire ${shape.name}`,
    text: `
WITH late AS MATERIALIZED (
  SELECT d.id FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (
    SELECT id, ${tooLate} AS gone FROM ${table.qualified} WHERE ready AND hash = ANY (ARRAY[g.hash])
    ORDER BY hash, ${beside} DESC, id LIMIT $2
  ) AS d WHERE d.gone LIMIT $2
), locked AS MATERIALIZED (
  SELECT id FROM ${table.qualified}
  WHERE id = ANY (ARRAY(SELECT id FROM late)) AND ${isReady} AND state::text = 'PLAN' AND ${tooLate}
  FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
  UPDATE ${table.qualified}
  SET state = 'GONE', ready = NULL, start = now(), stop = now(), error = 'ERROR:  task not active'
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING id, stop
), repeated AS (${repeatInsert(table, shape, "gone")}
)
SELECT id FROM gone`,
    values: [hashes, limit],
  });
  return rowCount ?? 0;
}

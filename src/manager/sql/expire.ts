import type { Client } from "../../shared/database.js";
import type { Shape } from "../shape.js";
import type { TaskTable } from "../table.js";
import { repeatInsert } from "./repeat.js";
import { tooLate } from "./tooLate.js";

/**
 * Ends due tasks that are no longer worth running as GONE, at most `limit` of them; those that
 * repeat are planned again.
 *
 * @returns how many.
 */
export async function expire(
  client: Client,
  table: TaskTable,
  shape: Shape,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query({
    name: `expire ${shape.name}`,
    text: `
WITH gone AS (
  UPDATE ${table.qualified}
  SET state = 'GONE', ready = NULL, start = now(), stop = now(), error = 'ERROR:  task not active'
  WHERE id = ANY (ARRAY(
    SELECT id FROM ${table.qualified} WHERE ready AND ${tooLate}
    LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED)) AND state::text = 'PLAN'
  RETURNING id, stop
), repeated AS (${repeatInsert(table, shape, "gone")}
)
SELECT id FROM gone`,
    values: [limit],
  });
  return rowCount ?? 0;
}

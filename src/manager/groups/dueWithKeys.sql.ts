import type { Client } from "../../shared/postgres/client.js";
import type { DueTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isReady } from "../sql/fragments.sql.js";
import { maxOthers } from "../schema/startRule.sql.js";

/**
 * Reads the due tasks with these keys. There is at most one of each key. `LIMIT 1` keeps the planner from reading the
 * whole index for a join.
 */
export async function dueWithKeys(client: Client, table: TaskTable, keys: readonly string[]): Promise<DueTask[]> {
  if (!table.hasKeys) return [];
  const { rows } = await client.query<DueTask>({
    name: "due with keys",
    text: `
SELECT t.id::text AS id, t.hash, ${maxOthers} AS max FROM unnest($1::text[]) AS k(key) CROSS JOIN LATERAL (
  SELECT id, hash, max FROM ${table.qualified} AS w
  WHERE w.key = ANY (ARRAY[k.key]) AND w.key IS NOT NULL AND w.ready IS NOT NULL AND ${isReady} AND w.plan <= now() LIMIT 1
) AS t`,
    values: [keys],
  });
  return rows;
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNotIn } from "../schema/startRule.sql.js";

/** A task in `PLAN` whose planned time has come. */
export interface OverdueTask {
  readonly id: string;
  readonly group: string;
  readonly locked: boolean;
}

/** Reads which of these tasks are still due, and whether their rows are locked. */
export async function readOverdueTasks(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<OverdueTask[]> {
  if (ids.length === 0) return [];
  const { rows } = await client.query<Omit<OverdueTask, "id"> & { id: string | number }>({
    name: "overdue tasks",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id, "group"::text AS "group", id <> ALL (ARRAY(SELECT id FROM free)) AS locked FROM ${table.qualified}
WHERE id = ANY ($1::bigint[]) AND state::text = 'PLAN' AND ready IS NOT NULL AND plan <= now() AND owner IS NULL
ORDER BY id`,
    values: [ids],
  });
  return rows.map((row) => ({ ...row, id: String(row.id) }));
}

/**
 * Reads up to `limit` tasks whose planned time has come but which are not marked as due. They are ordered by planned
 * time.
 */
export async function readUnmarkedTasks(
  client: Client,
  table: TaskTable,
  request: { readonly limit: number; readonly except: readonly string[] },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "unmarked tasks",
    text: `
SELECT id FROM ${table.qualified}
WHERE NOT ready AND plan <= now() AND owner IS NULL AND ${isNotIn("id", "$2")} ORDER BY plan LIMIT $1`,
    values: [request.limit, request.except],
  });
  return rows.map(({ id }) => String(id));
}

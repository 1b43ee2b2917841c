import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf } from "../sql/byId.js";

/** A task in PLAN whose plan has come. */
export interface OverdueTask {
  readonly id: string;
  readonly group: string;
  readonly locked: boolean;
}

/** Those of these tasks that are to start since their plan has come, and whether somebody has their row locked. */
export async function overdueTasks(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<OverdueTask[]> {
  const { rows } = await client.query<Omit<OverdueTask, "id"> & { id: string | number }>({
    name: "waiting",
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

/** At most `limit` tasks whose plan has come and that are not marked as due, those that were planned first. */
export async function unmarked(
  client: Client,
  table: TaskTable,
  request: { readonly limit: number; readonly except: readonly string[] },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "unmarked",
    text: `
SELECT id FROM ${table.qualified}
WHERE NOT ready AND plan <= now() AND owner IS NULL AND ${isNoneOf("id", "$2")} ORDER BY plan LIMIT $1`,
    values: [request.limit, request.except],
  });
  return rows.map(({ id }) => String(id));
}

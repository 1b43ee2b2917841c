import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { filterSql, type TaskFilter } from "../taskFilter.js";

/** Ids of those that fit, in their order: at most `limit` of those above `after`. */
export async function idsOf(
  client: Client,
  { qualified }: TaskTable,
  request: { readonly filter: TaskFilter; readonly limit: number; readonly after: string | null },
): Promise<string[]> {
  const values: unknown[] = [request.limit];
  const wanted = filterSql(request.filter, values);
  const after = request.after === null ? "" : `AND t.id > $${values.push(request.after)}::bigint`;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM ${qualified} AS t WHERE ${wanted} ${after} ORDER BY t.id LIMIT $1`,
    values,
  );
  return rows.map(({ id }) => id);
}

/** How many fit. */
export async function countTasks(
  client: Client,
  { qualified }: TaskTable,
  filter: TaskFilter,
): Promise<number> {
  const values: unknown[] = [];
  const wanted = filterSql(filter, values);
  const { rows } = await client.query<{ count: string }>(
    `SELECT count(*) AS count FROM ${qualified} AS t WHERE ${wanted}`,
    values,
  );
  return Number(rows[0]?.count ?? 0);
}

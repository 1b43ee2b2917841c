import type { Client, Queryable } from "../shared/postgres/client.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import { requireKeys } from "./requireFeatures.js";
import type { TaskFilter } from "./types.js";

/**
 * Makes sure that the table has what the filter's conditions name, before `filterSql` is used.
 *
 * @throws PgTaskError USAGE for `key` if tasks of this table cannot have keys. A column of this name is then the user's.
 */
export async function requireFilter(client: Queryable, table: TaskTable, { key }: TaskFilter): Promise<void> {
  if (key !== undefined) await requireKeys(client, table);
}

/** Returns the SQL of the filter's conditions on the table `t`, and appends their parameters to `values`. */
export function filterSql(filter: TaskFilter, values: unknown[]): string {
  const parameter = (value: unknown): string => `$${values.push(value)}`;
  const conditions: string[] = [];
  const { states, group, key, text, since, until } = filter;
  if (states !== undefined) conditions.push(`t.state::text = ANY (${parameter(states)}::text[])`);
  if (group !== undefined) conditions.push(`t."group"::text = ${parameter(group)}::text`);
  if (key !== undefined) conditions.push(`t.key = ${parameter(key)}::text`);
  if (text !== undefined) {
    const pattern = `lower(${parameter(text)}::text)`;
    const columns = ["input", "data", "error"].map((name) => `strpos(lower(t.${name}::text), ${pattern}) > 0`);
    conditions.push(`(${columns.join(" OR ")})`);
  }
  if (since !== undefined) conditions.push(`t.plan >= ${parameter(since)}::timestamptz`);
  if (until !== undefined) conditions.push(`t.plan < ${parameter(until)}::timestamptz`);
  return conditions.length === 0 ? "true" : conditions.join(" AND ");
}

/**
 * Returns the ids of up to `limit` matching tasks, in ascending order. If `after` is not null, only ids above `after`
 * are returned.
 */
export async function readMatchingIds(
  client: Client,
  { qualified }: TaskTable,
  request: { readonly filter: TaskFilter; readonly limit: number; readonly after: string | null },
): Promise<string[]> {
  const values: unknown[] = [request.limit];
  const matches = filterSql(request.filter, values);
  const after = request.after === null ? "" : `AND t.id > $${values.push(request.after)}::bigint`;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM ${qualified} AS t WHERE ${matches} ${after} ORDER BY t.id LIMIT $1`,
    values,
  );
  return rows.map(({ id }) => id);
}

/** Returns the number of matching tasks. */
export async function countMatching(client: Client, { qualified }: TaskTable, filter: TaskFilter): Promise<number> {
  const values: unknown[] = [];
  const matches = filterSql(filter, values);
  const { rows } = await client.query<{ count: string }>(
    `SELECT count(*) AS count FROM ${qualified} AS t WHERE ${matches}`,
    values,
  );
  return Number(rows[0]?.count ?? 0);
}

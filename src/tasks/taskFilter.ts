import { queryValue } from "./queryOne.js";
import type { Client } from "../shared/postgres/client.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import type { TaskFilter } from "./types.js";

/** The conditions on the table `t`. Their parameters are appended to `values`. */
export function filterSql(filter: TaskFilter, values: unknown[]): string {
  const parameter = (value: unknown): string => `$${values.push(value)}`;
  const conditions: string[] = [];
  const { states, group, key, text, since, until } = filter;
  if (states !== undefined)
    conditions.push(`t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (${parameter(states)}::pg_catalog.text[])`);
  if (group !== undefined)
    conditions.push(`t."group"::pg_catalog.text OPERATOR(pg_catalog.=) ${parameter(group)}::pg_catalog.text`);
  if (key !== undefined) conditions.push(`t.key OPERATOR(pg_catalog.=) ${parameter(key)}::pg_catalog.text`);
  if (text !== undefined) {
    const pattern = `pg_catalog.lower(${parameter(text)}::pg_catalog.text)`;
    const columns = ["input", "data", "error"].map(
      (name) => `pg_catalog.strpos(pg_catalog.lower(t.${name}::pg_catalog.text), ${pattern}) OPERATOR(pg_catalog.>) 0`,
    );
    conditions.push(`(${columns.join(" OR ")})`);
  }
  if (since !== undefined)
    conditions.push(`t.plan OPERATOR(pg_catalog.>=) ${parameter(since)}::pg_catalog.timestamptz`);
  if (until !== undefined) conditions.push(`t.plan OPERATOR(pg_catalog.<) ${parameter(until)}::pg_catalog.timestamptz`);
  return conditions.length === 0 ? "true" : conditions.join(" AND ");
}

/** In ascending order, and only above `after` unless it is null. */
export async function readMatchingIds(
  client: Client,
  { qualified }: TaskTable,
  request: { readonly filter: TaskFilter; readonly limit: number; readonly after: string | null },
): Promise<string[]> {
  const values: unknown[] = [request.limit];
  const matches = filterSql(request.filter, values);
  const after = request.after === null ? "" : `AND t.id OPERATOR(pg_catalog.>) $${values.push(request.after)}::bigint`;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::pg_catalog.text AS id FROM ${qualified} AS t WHERE ${matches} ${after} ORDER BY t.id LIMIT $1`,
    values,
  );
  return rows.map(({ id }) => id);
}

export async function countMatching(client: Client, { qualified }: TaskTable, filter: TaskFilter): Promise<number> {
  const values: unknown[] = [];
  const matches = filterSql(filter, values);
  return await queryValue(
    client,
    `SELECT pg_catalog.count(*)::pg_catalog.float8 AS count FROM ${qualified} AS t WHERE ${matches}`,
    values,
  );
}

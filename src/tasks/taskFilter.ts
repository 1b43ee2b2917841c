import { queryValue } from "./queryOne.js";
import { isActiveSql, shareSql } from "./sqlFragments.js";
import type { Client } from "../shared/postgres/client.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import type { TaskFilter } from "./types.js";
import { isLastRun } from "../manager/schema/schedulesView.sql.js";

/** The conditions on the table `t`. Their parameters are appended to `values`. */
export function filterSql(filter: TaskFilter, values: unknown[]): string {
  const parameter = (value: unknown): string => `$${values.push(value)}`;
  const conditions: string[] = [];
  const { states, group, key, role, text, since, until } = filter;
  if (states !== undefined)
    conditions.push(`t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (${parameter(states)}::pg_catalog.text[])`);
  if (group !== undefined)
    conditions.push(`t."group"::pg_catalog.text OPERATOR(pg_catalog.=) ${parameter(group)}::pg_catalog.text`);
  if (key !== undefined) conditions.push(`t.key OPERATOR(pg_catalog.=) ${parameter(key)}::pg_catalog.text`);
  if (role !== undefined)
    conditions.push(`t.role::pg_catalog.text OPERATOR(pg_catalog.=) ${parameter(role)}::pg_catalog.text`);
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

/** What lists and changes of many tasks can be limited to. */
export interface ListFilter extends TaskFilter {
  /** Times in PostgreSQL's syntax: it ended at this time or later, and before this time. */
  readonly endedSince?: string | undefined;
  readonly endedUntil?: string | undefined;
  /** The row of a schedule: it is this row or one of the last runs before it. */
  readonly schedule?: string | undefined;
  /** Its share, with the value of `pg_task.share`. */
  readonly share?: { readonly name: string; readonly setting: string } | undefined;
}

/** As `filterSql`, and with the conditions of lists. */
export function listFilterSql({ qualified }: TaskTable, filter: ListFilter, values: unknown[]): string {
  const parameter = (value: unknown): string => `$${values.push(value)}`;
  const conditions = [filterSql(filter, values)];
  const { endedSince, endedUntil, schedule, share } = filter;
  if (endedSince !== undefined) conditions.push(endedSql("OPERATOR(pg_catalog.>=)", parameter(endedSince)));
  if (endedUntil !== undefined) conditions.push(endedSql("OPERATOR(pg_catalog.<)", parameter(endedUntil)));
  if (schedule !== undefined)
    conditions.push(`t.id OPERATOR(pg_catalog.=) ANY (ARRAY(${runsSql(qualified, parameter(schedule))}))`);
  if (share !== undefined) {
    const ofTask = shareSql("t", parameter(share.setting));
    conditions.push(`${ofTask} OPERATOR(pg_catalog.=) ${parameter(share.name)}::pg_catalog.text`);
  }
  return conditions.join(" AND ");
}

/** A task that waits for its next try has the end of the last one in `stop`. */
const endedSql = (operator: string, time: string): string =>
  `NOT ${isActiveSql} AND t.stop::pg_catalog.timestamptz ${operator} ${time}::pg_catalog.timestamptz`;

/** How many runs of a schedule are looked up by their parents. */
const maxRuns = 1_000;

const runsSql = (qualified: string, id: string): string => `
  WITH RECURSIVE run AS (
    SELECT 0 AS depth, s.id::bigint AS id, s.parent::bigint AS parent, s.input::pg_catalog.text AS input, s.repeat, s.rule, s.key
    FROM ${qualified} AS s WHERE s.id OPERATOR(pg_catalog.=) ${id}::bigint
    UNION ALL
    SELECT s.depth OPERATOR(pg_catalog.+) 1, l.id::bigint, l.parent::bigint, s.input, s.repeat, s.rule, s.key
    FROM run AS s JOIN ${qualified} AS l ON ${isLastRun()} WHERE s.depth OPERATOR(pg_catalog.<) ${maxRuns}
  ) SELECT run.id FROM run`;

/** In ascending order, and only above `after` unless it is null. */
export async function readMatchingIds(
  client: Client,
  table: TaskTable,
  request: { readonly filter: ListFilter; readonly limit: number; readonly after: string | null },
): Promise<string[]> {
  const values: unknown[] = [request.limit];
  const matches = listFilterSql(table, request.filter, values);
  const after = request.after === null ? "" : `AND t.id OPERATOR(pg_catalog.>) $${values.push(request.after)}::bigint`;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::pg_catalog.text AS id FROM ${table.qualified} AS t WHERE ${matches} ${after} ORDER BY t.id LIMIT $1`,
    values,
  );
  return rows.map(({ id }) => id);
}

export async function countMatching(client: Client, table: TaskTable, filter: ListFilter): Promise<number> {
  const values: unknown[] = [];
  const matches = listFilterSql(table, filter, values);
  return await queryValue(
    client,
    `SELECT pg_catalog.count(*)::pg_catalog.float8 AS count FROM ${table.qualified} AS t WHERE ${matches}`,
    values,
  );
}

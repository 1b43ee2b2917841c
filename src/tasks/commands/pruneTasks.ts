import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { filterSql, type TaskFilter } from "../taskFilter.js";

/** Rows that one step looks at, at most. */
const batch = 1000;

/**
 * The moment before which a finished row is old, in the server's text.
 *
 * @throws what the server says of the interval; PgTaskError USAGE when it is below 0.
 */
export async function moment(client: Client, older: string): Promise<string> {
  const { rows } = await client.query<{ moment: string; future: boolean }>(
    `SELECT m.moment::text AS moment, m.moment > statement_timestamp() AS future
     FROM (SELECT statement_timestamp() - $1::interval AS moment) AS m`,
    [older],
  );
  const { moment: before = "", future = false } = rows[0] ?? {};
  if (future) {
    const problem = `expected --older to be an interval of 0 or more, got ${JSON.stringify(older)}`;
    throw new PgTaskError("USAGE", problem);
  }
  return before;
}

/** Finished rows that ended before that; those that never started count by their plan. */
function old(values: unknown[], before: string, filter: TaskFilter): string {
  return `t.owner IS NULL AND t.ready IS NULL AND t.state::text IN ('DONE', 'FAIL', 'GONE', 'STOP')
    AND coalesce(t.stop, t.plan) < $${values.push(before)}::timestamptz AND ${filterSql(filter, values)}`;
}

/** How many rows there are to remove. */
export async function countOld(
  client: Client,
  { qualified }: TaskTable,
  before: string,
  filter: TaskFilter,
): Promise<number> {
  const values: unknown[] = [];
  const { rows } = await client.query<{ count: string }>(
    `SELECT count(*) AS count FROM ${qualified} AS t WHERE ${old(values, before, filter)}`,
    values,
  );
  return Number(rows[0]?.count ?? 0);
}

/**
 * Removes the next old rows, in a transaction of its own; those that somebody has locked stay.
 *
 * @param after id of the last row of the step before
 * @returns `next` is null when there are no more.
 */
export async function pruneStep(
  client: Client,
  { qualified }: TaskTable,
  before: string,
  filter: TaskFilter,
  after: string | null,
): Promise<{ deleted: number; locked: number; next: string | null }> {
  const values: unknown[] = [];
  const fits = old(values, before, filter);
  const from = after === null ? "" : `AND t.id > $${values.push(after)}::bigint`;
  const { rows } = await client.query<{ deleted: string; found: string; next: string | null }>(
    `WITH found AS MATERIALIZED (
       SELECT t.id FROM ${qualified} AS t WHERE ${fits} ${from} ORDER BY t.id LIMIT ${batch}
     ), free AS MATERIALIZED (
       SELECT t.id FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT id FROM found)) AND ${fits} FOR UPDATE SKIP LOCKED
     ), deleted AS (
       DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM free)) RETURNING id
     )
     SELECT (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM found) AS found,
       (SELECT max(id)::text FROM found HAVING count(*) = ${batch}) AS next`,
    values,
  );
  const { deleted = "0", found = "0", next = null } = rows[0] ?? {};
  return { deleted: Number(deleted), locked: Number(found) - Number(deleted), next };
}

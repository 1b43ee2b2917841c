import { queryOne, queryValue } from "../queryOne.js";
import type { TaskFilter } from "../types.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { isOwing } from "../../manager/schema/schedulesView.sql.js";
import { literal } from "../../shared/postgres/quoting.js";
import { finalStates } from "../../shared/taskState.js";
import { filterSql } from "../taskFilter.js";

const batchRows = 1000;

/** @throws the server's error if the interval is invalid; PgTaskError USAGE if it is negative */
export async function readPruneCutoff(client: Client, older: string): Promise<string> {
  const { moment, future } = await queryOne<{ moment: string; future: boolean }>(
    client,
    `SELECT m.moment::text AS moment, m.moment > statement_timestamp() AS future
     FROM (SELECT statement_timestamp() - $1::interval AS moment) AS m`,
    [older],
  );
  if (future) {
    const problem = `expected --older to be an interval of 0 or more, got ${JSON.stringify(older)}`;
    throw new PgTaskError("USAGE", problem);
  }
  return moment;
}

/**
 * No column says when a task was stopped that had not started. Its planned time counts, or if that lies ahead, the time
 * at which it was added.
 */
function isPrunableSql(values: unknown[], cutoff: string, filter: TaskFilter): string {
  // The schedule of a row that owes its successor goes on from this row.
  return `t.owner IS NULL AND t.ready IS NULL AND t.state::text IN (${finalStates.map(literal).join(", ")}) AND NOT ${isOwing("t")}
    AND coalesce(t.stop, CASE WHEN t.plan > statement_timestamp() THEN t.created END, t.plan) < $${values.push(cutoff)}::timestamptz AND ${filterSql(filter, values)}`;
}

export async function countPrunable(
  client: Client,
  { qualified }: TaskTable,
  cutoff: string,
  filter: TaskFilter,
): Promise<number> {
  const values: unknown[] = [];
  const matches = isPrunableSql(values, cutoff, filter);
  return await queryValue(client, `SELECT count(*)::float8 AS count FROM ${qualified} AS t WHERE ${matches}`, values);
}

/**
 * @param after last id of the previous batch
 * @returns `next` is the last id of this batch, or null after the last one
 */
export async function pruneBatch(
  client: Client,
  { qualified }: TaskTable,
  cutoff: string,
  filter: TaskFilter,
  after: string | null,
): Promise<{ deleted: number; locked: number; next: string | null }> {
  const values: unknown[] = [];
  const matches = isPrunableSql(values, cutoff, filter);
  const from = after === null ? "" : `AND t.id > $${values.push(after)}::bigint`;
  const { deleted, found, next } = await queryOne<{ deleted: string; found: string; next: string | null }>(
    client,
    `WITH found AS MATERIALIZED (
       SELECT t.id FROM ${qualified} AS t WHERE ${matches} ${from} ORDER BY t.id LIMIT ${batchRows}
     ), free AS MATERIALIZED (
       SELECT t.id FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT id FROM found)) AND ${matches} FOR UPDATE SKIP LOCKED
     ), deleted AS (
       DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM free)) RETURNING id
     )
     SELECT (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM found) AS found,
       (SELECT max(id)::text FROM found HAVING count(*) = ${batchRows}) AS next`,
    values,
  );
  return { deleted: Number(deleted), locked: Number(found) - Number(deleted), next };
}

import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { Count } from "../schemas.js";

/** Most entries of an index that are counted. */
const mostCounted = 10_000;

export interface Waiting {
  /** Tasks whose plan has come, and those whose plan has not. */
  readonly due: Count;
  readonly later: Count;
  readonly oldestDueMs: number | null;
}

/** What waits, by the queue's own indexes; beyond ten thousand an estimate. */
export async function waiting(client: Client, { qualified }: TaskTable): Promise<Waiting> {
  const { rows } = await client.query<{ due: number; later: number; oldest: number | null }>(
    `SELECT d.due, l.later, d.oldest FROM (
       SELECT count(*)::int AS due,
         greatest(0, extract(epoch FROM now() - min(plan)))::float8 * 1000 AS oldest
       FROM (SELECT plan::timestamptz AS plan FROM ${qualified} WHERE ready LIMIT ${mostCounted}) AS r
       WHERE isfinite(plan)
     ) AS d, (
       SELECT count(*)::int AS later
       FROM (SELECT FROM ${qualified} WHERE NOT ready LIMIT ${mostCounted}) AS r
     ) AS l`,
  );
  const { due = 0, later = 0, oldest = null } = rows[0] ?? {};
  return {
    due: await orEstimate(client, due, `${qualified} WHERE ready`),
    later: await orEstimate(client, later, `${qualified} WHERE NOT ready`),
    oldestDueMs: due === 0 ? null : oldest,
  };
}

async function orEstimate(client: Client, counted: number, source: string): Promise<Count> {
  if (counted < mostCounted) return { value: counted, exact: true };
  const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>(
    `EXPLAIN (FORMAT JSON) SELECT FROM ${source}`,
  );
  const estimate = rows[0]?.["QUERY PLAN"][0].Plan["Plan Rows"] ?? 0;
  return { value: Math.max(counted, estimate), exact: false };
}

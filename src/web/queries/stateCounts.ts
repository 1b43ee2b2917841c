import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import { literal } from "../../shared/sqlText.js";
import { states, type Count, type TaskState } from "../schemas.js";

/** A table of more pages than this is not counted but estimated: 32 MB of pages of 8 kB. */
const mostPages = 4096;

export interface StateCounts {
  readonly rows: Count;
  readonly states: Record<TaskState, Count>;
}

/** How many rows there are in each state: counted in a small table, the planner's estimate in others. */
export async function stateCounts(client: Client, table: TaskTable): Promise<StateCounts> {
  return (await pages(client, table)) <= mostPages
    ? await counted(client, table)
    : await estimated(client, table);
}

async function pages(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows } = await client.query<{ pages: number }>(
    `SELECT (coalesce(sum(pg_relation_size(part)), 0) / current_setting('block_size')::int)::float8 AS pages
     FROM (SELECT $1::regclass AS part UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return rows[0]?.pages ?? 0;
}

const exact = (value: number): Count => ({ value, exact: true });

async function counted(client: Client, { qualified }: TaskTable): Promise<StateCounts> {
  const { rows } = await client.query<{ state: TaskState; rows: number }>(
    `SELECT state::text AS state, count(*)::float8 AS rows FROM ${qualified} GROUP BY 1`,
  );
  const numbers = new Map(rows.map((row) => [row.state, row.rows]));
  return {
    rows: exact(rows.reduce((sum, row) => sum + row.rows, 0)),
    states: perState((state) => exact(numbers.get(state) ?? 0)),
  };
}

async function estimated(client: Client, { qualified }: TaskTable): Promise<StateCounts> {
  const estimate = async (condition: string): Promise<Count> => {
    const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>(
      `EXPLAIN (FORMAT JSON) SELECT FROM ${qualified} ${condition}`,
    );
    return { value: rows[0]?.["QUERY PLAN"][0].Plan["Plan Rows"] ?? 0, exact: false };
  };
  const all = await estimate("");
  const found = new Map<TaskState, Count>();
  // A literal takes the column's own type, whose statistics the planner has.
  for (const state of states) found.set(state, await estimate(`WHERE state = ${literal(state)}`));
  return { rows: all, states: perState((state) => found.get(state) ?? all) };
}

const perState = (count: (state: TaskState) => Count): Record<TaskState, Count> => ({
  PLAN: count("PLAN"),
  TAKE: count("TAKE"),
  WORK: count("WORK"),
  DONE: count("DONE"),
  FAIL: count("FAIL"),
  GONE: count("GONE"),
  STOP: count("STOP"),
});

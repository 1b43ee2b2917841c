import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { estimate, type Count } from "./count.js";
import { states, type TaskState } from "../taskFilter.js";

/** A table of more pages than this is not counted but estimated: 32 MB of pages of 8 kB. */
const mostPages = 4096;

/** How many rows there are, and how many in each state. */
export interface RowCounts {
  readonly rows: Count;
  readonly states: Readonly<Record<TaskState, Count>>;
}

/** Counted in a small table, the planner's estimate in others. */
export async function readRowCounts(client: Client, table: TaskTable): Promise<RowCounts> {
  return (await readPages(client, table)) <= mostPages
    ? await counted(client, table)
    : await estimated(client, table);
}

/** How many pages the table has, its partitions' included. */
export async function readPages(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows } = await client.query<{ pages: number }>(
    `SELECT (coalesce(sum(pg_relation_size(part)), 0) / current_setting('block_size')::int)::float8 AS pages
     FROM (SELECT $1::regclass AS part UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return rows[0]?.pages ?? 0;
}

const exact = (value: number): Count => ({ value, exact: true });

async function counted(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const { rows } = await client.query<{ state: TaskState; rows: number }>(
    `SELECT state::text AS state, count(*)::float8 AS rows FROM ${qualified} GROUP BY 1`,
  );
  const numbers = new Map(rows.map((row) => [row.state, row.rows]));
  return {
    rows: exact(rows.reduce((sum, row) => sum + row.rows, 0)),
    states: perState((state) => exact(numbers.get(state) ?? 0)),
  };
}

async function estimated(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const expected = async (condition: string): Promise<Count> => ({
    value: await estimate(client, `${qualified} ${condition}`),
    exact: false,
  });
  const all = await expected("");
  const found = new Map<TaskState, Count>();
  // A literal takes the column's own type, whose statistics the planner has.
  for (const state of states) found.set(state, await expected(`WHERE state = ${literal(state)}`));
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

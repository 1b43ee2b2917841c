import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { taskStates, type TaskState } from "../../shared/taskState.js";

/**
 * Maximum size of a table whose rows are counted, in pages. With pages of 8 kB, this is 32 MB. The numbers of rows of
 * larger tables are estimated.
 */
const maxCountedPages = 4096;

/** Number of rows, in total and in each state. */
export interface RowCounts {
  readonly rows: Count;
  readonly states: Readonly<Record<TaskState, Count>>;
}

/**
 * Returns the number of rows. The numbers are exact for small tables, and the planner's estimates for larger tables. The
 * tasks in PLAN of a larger table are those of the backlog, which was counted with the indexes of waiting tasks.
 */
export async function readRowCounts(
  client: Client,
  table: TaskTable,
  { due, planned }: { readonly due: Count; readonly planned: Count },
): Promise<RowCounts> {
  if ((await readPages(client, table)) <= maxCountedPages) return await countRows(client, table);
  const { rows, states } = await estimateCounts(client, table);
  const PLAN = { value: due.value + planned.value, exact: due.exact && planned.exact };
  return { rows, states: { ...states, PLAN } };
}

/** Returns the number of pages of the table, including the pages of its partitions. */
export async function readPages(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows } = await client.query<{ pages: number }>(
    `SELECT (coalesce(sum(pg_relation_size(part)), 0) / current_setting('block_size')::int)::float8 AS pages
     FROM (SELECT $1::regclass AS part UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return rows[0]?.pages ?? 0;
}

const exactCount = (value: number): Count => ({ value, exact: true });

async function countRows(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const { rows } = await client.query<{ state: TaskState; rows: number }>(
    `SELECT state::text AS state, count(*)::float8 AS rows FROM ${qualified} GROUP BY 1`,
  );
  const numbers = new Map(rows.map((row) => [row.state, row.rows]));
  return {
    rows: exactCount(rows.reduce((sum, row) => sum + row.rows, 0)),
    states: perState((state) => exactCount(numbers.get(state) ?? 0)),
  };
}

async function estimateCounts(client: Client, { qualified }: TaskTable): Promise<RowCounts> {
  const expected = async (condition: string): Promise<Count> => ({
    value: await estimateRows(client, `${qualified} ${condition}`),
    exact: false,
  });
  const all = await expected("");
  const found = new Map<TaskState, Count>();
  // A literal without a type takes the column's type, for which the planner has statistics.
  for (const state of taskStates) found.set(state, await expected(`WHERE state = ${literal(state)}`));
  return { rows: all, states: perState((state) => found.get(state) ?? all) };
}

const perState = (count: (state: TaskState) => Count): Record<TaskState, Count> =>
  Object.assign({}, ...taskStates.map((state) => ({ [state]: count(state) })));

/** A count, or an estimate if counting would take long. */
export interface Count {
  readonly value: number;
  readonly exact: boolean;
}

/**
 * Returns the planner's estimate of the number of rows.
 *
 * @param source what follows FROM in a query
 */
export async function estimateRows(client: Client, source: string): Promise<number> {
  const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>(
    `EXPLAIN (FORMAT JSON) SELECT FROM ${source}`,
  );
  return rows[0]?.["QUERY PLAN"][0].Plan["Plan Rows"] ?? 0;
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { filterSql, type TaskFilter } from "../taskFilter.js";
import { readSummaries, type TaskSummary } from "./taskSummary.js";
import { Window } from "./scanWindow.js";

export interface ListRequest {
  readonly filter: TaskFilter;
  readonly limit: number;
  /** Only tasks with a smaller id. */
  readonly before?: string | undefined;
  /** Most that a summary has of input, output and error. */
  readonly characters: number;
}

export interface TaskList {
  /** The largest id first. */
  readonly tasks: TaskSummary[];
  /** Where to go on, as `before`; null at the end. */
  readonly next: string | null;
  /** How many rows were looked through. */
  readonly looked: number;
}

/**
 * Tasks, the newest first. No index has what a filter asks for: with one, the rows are looked
 * through by id, a window at a time, for as long as `enough` says no of how many those were.
 */
export async function listTasks(
  client: Client,
  table: TaskTable,
  request: ListRequest,
  enough: (looked: number) => boolean = () => false,
): Promise<TaskList> {
  const { limit, characters } = request;
  const filtered = Object.keys(request.filter).length > 0;
  const window = new Window();
  const ids: string[] = [];
  let before = request.before;
  let looked = 0;
  const listed = async (next: string | null): Promise<TaskList> => ({
    tasks: await readSummaries(client, table, ids.slice(0, limit), characters),
    next,
    looked,
  });
  for (;;) {
    const wanted = limit - ids.length + 1;
    const size = filtered ? window.rows : wanted;
    const from = before;
    const found = await window.timed(() =>
      look(client, table, request.filter, { before: from, size, wanted }),
    );
    looked += found.looked;
    ids.push(...found.ids);
    if (ids.length > limit) return await listed(ids[limit - 1] ?? null);
    if (found.looked < size) return await listed(null);
    before = found.last;
    if (enough(looked)) return await listed(before);
  }
}

/** Ids of those that fit among the `size` rows below `before`, at most as many as are wanted. */
async function look(
  client: Client,
  { qualified }: TaskTable,
  filter: TaskFilter,
  { before, size, wanted }: { before: string | undefined; size: number; wanted: number },
): Promise<{ readonly looked: number; readonly last: string; readonly ids: string[] }> {
  const values: unknown[] = [];
  const fits = filterSql(filter, values);
  const below = before === undefined ? "" : `WHERE t.id < $${values.push(before)}::bigint`;
  const { rows } = await client.query<{ looked: number; last: string; ids: string[] }>(
    `WITH seen AS MATERIALIZED (
       SELECT t.id, (${fits}) IS TRUE AS fits FROM ${qualified} AS t ${below} ORDER BY t.id DESC LIMIT ${size}
     )
     SELECT count(*)::integer AS looked, coalesce(min(id)::text, '') AS last,
       ARRAY(SELECT id::text FROM seen WHERE fits ORDER BY seen.id DESC LIMIT ${wanted}) AS ids FROM seen`,
    values,
  );
  return rows[0] ?? { looked: 0, last: "", ids: [] };
}

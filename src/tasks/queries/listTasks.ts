import type { TaskFilter, TaskSummary } from "../types.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { dueOrderSql, isDueSql, isPlannedSql } from "../sqlFragments.js";
import { filterSql } from "../taskFilter.js";
import { readSummaries } from "./taskSummary.js";
import { ScanWindow } from "./scanWindow.js";
import { waitingIdsSql } from "./waitingTasks.js";

export interface ListRequest {
  readonly filter: TaskFilter;
  readonly limit: number;
  /** If given, only tasks with a smaller id are listed. */
  readonly before?: string | undefined;
  /** If given, only tasks with a larger id are listed. */
  readonly after?: string | undefined;
  /** Whether the tasks are listed in ascending instead of descending order of their ids. */
  readonly oldestFirst?: boolean | undefined;
  /** If given, only tasks that wait for the end of the task with this id are listed. */
  readonly waitingFor?: string | undefined;
  /** Maximum length of input, output and error in a summary, in characters. */
  readonly characters: number;
}

export interface TaskList {
  /** The tasks in the requested order of their ids. */
  readonly tasks: TaskSummary[];
  /** Value of `before`, or of `after` if the oldest come first, for the next page. Null after the last page. */
  readonly next: string | null;
  /** Number of rows that were scanned to find these tasks. */
  readonly scanned: number;
}

/**
 * Lists tasks by their ids, newest first unless requested otherwise. No index supports filters. With a filter, rows are
 * therefore scanned in this order, one window (a limited number of rows) at a time. Tasks that wait for another one are
 * found by indexes. If only tasks in PLAN are wanted, newest first, and the first window has too few of them, those are
 * found by the indexes of waiting tasks.
 *
 * @param enough called with the number of rows scanned so far; the scan ends when it returns true
 */
export async function listTasks(
  client: Queryable,
  table: TaskTable,
  request: ListRequest,
  enough: (scanned: number) => boolean = () => false,
): Promise<TaskList> {
  const { limit, characters } = request;
  const filtered = Object.keys(request.filter).length > 0;
  const window = new ScanWindow();
  const ids: string[] = [];
  const { oldestFirst = false } = request;
  let { before, after } = request;
  let scanned = 0;
  const listed = async (next: string | null): Promise<TaskList> => ({
    tasks: await readSummaries(client, table, ids.slice(0, limit), characters),
    next,
    scanned,
  });
  for (;;) {
    const wanted = limit - ids.length + 1;
    const size = filtered ? window.rows : wanted;
    const part = { before, after, oldestFirst, size, wanted };
    const found = await window.timed(() => readWindow(client, table, request, part));
    scanned += found.scanned;
    ids.push(...found.ids);
    if (ids.length > limit) return await listed(ids[limit - 1] ?? null);
    if (found.scanned < size) return await listed(null);
    const waiting =
      scanned === found.scanned && areIndexed(request) ? await readWaitingIds(client, table, request) : null;
    if (waiting !== null) {
      // The window may also have tasks that were set to PLAN while they run.
      const all = [...new Set([...ids, ...waiting])].toSorted((a, b) => (BigInt(a) > BigInt(b) ? -1 : 1));
      ids.splice(0, ids.length, ...all);
      return await listed(ids[limit] === undefined ? null : (ids[limit - 1] ?? null));
    }
    if (oldestFirst) after = found.last;
    else before = found.last;
    if (enough(scanned)) return await listed(found.last);
  }
}

/** A window of the scan. */
interface Window extends Pick<ListRequest, "before" | "after"> {
  readonly oldestFirst: boolean;
  /** Number of rows. */
  readonly size: number;
  /** Number of matching tasks that are needed. */
  readonly wanted: number;
}

/**
 * Scans the next `size` rows between the ids `after` and `before`.
 *
 * @returns the ids of up to `wanted` matching tasks among these rows.
 */
async function readWindow(
  client: Queryable,
  table: TaskTable,
  { filter, waitingFor }: Pick<ListRequest, "filter" | "waitingFor">,
  { before, after, oldestFirst, size, wanted }: Window,
): Promise<{ readonly scanned: number; readonly last: string; readonly ids: string[] }> {
  const values: unknown[] = [];
  const fits = filterSql(filter, values);
  const limits: string[] = [];
  if (before !== undefined) limits.push(`t.id OPERATOR(pg_catalog.<) $${values.push(before)}::bigint`);
  if (after !== undefined) limits.push(`t.id OPERATOR(pg_catalog.>) $${values.push(after)}::bigint`);
  if (waitingFor !== undefined) {
    limits.push(
      `t.id OPERATOR(pg_catalog.=) ANY (ARRAY(${waitingIdsSql(table, `$${values.push(waitingFor)}::bigint`)}))`,
    );
  }
  const where = limits.length === 0 ? "" : `WHERE ${limits.join(" AND ")}`;
  const direction = oldestFirst ? "ASC" : "DESC";
  const { rows } = await client.query<{ scanned: number; last: string; ids: string[] }>(
    `WITH seen AS MATERIALIZED (
       SELECT t.id, (${fits}) IS TRUE AS fits FROM ${table.qualified} AS t ${where} ORDER BY t.id ${direction} LIMIT ${size}
     )
     SELECT pg_catalog.count(*)::integer AS scanned, coalesce(pg_catalog.${oldestFirst ? "max" : "min"}(id)::pg_catalog.text, '') AS last,
       ARRAY(SELECT id::pg_catalog.text FROM seen WHERE fits ORDER BY seen.id ${direction} LIMIT ${wanted}) AS ids FROM seen`,
    values,
  );
  return rows[0] ?? { scanned: 0, last: "", ids: [] };
}

/** Up to this many tasks are looked up in each of the two indexes of waiting tasks. */
const maxWaiting = 20_000;

/** Whether the indexes of waiting tasks have all tasks of the list, in its order. */
const areIndexed = ({ filter: { states }, oldestFirst, after, waitingFor }: ListRequest): boolean =>
  states?.length === 1 &&
  states[0] === "PLAN" &&
  oldestFirst !== true &&
  after === undefined &&
  waitingFor === undefined;

/**
 * Returns the ids of the matching tasks that wait, or null if too many tasks wait. A task that was set to PLAN while it
 * runs is in neither index: it has an owner, and starts to wait when its run has ended.
 */
async function readWaitingIds(
  client: Queryable,
  { qualified }: TaskTable,
  { filter, limit, before }: ListRequest,
): Promise<string[] | null> {
  const values: unknown[] = [];
  const fits = filterSql(filter, values);
  const older = before === undefined ? "" : `AND w.id OPERATOR(pg_catalog.<) $${values.push(before)}::bigint`;
  if (filter.key !== undefined) {
    // At most one task waits with a key, and the index of keys has it.
    const { rows } = await client.query<{ id: string }>(
      `SELECT w.id::pg_catalog.text AS id FROM (
         SELECT t.id FROM ${qualified} AS t WHERE ${fits} AND t.key IS NOT NULL AND t.ready IS NOT NULL
       ) AS w WHERE true ${older} ORDER BY w.id DESC LIMIT ${limit + 1}`,
      values,
    );
    return rows.map(({ id }) => id);
  }
  const { rows } = await client.query<{ ids: string[]; many: boolean }>(
    `WITH due AS MATERIALIZED (
       SELECT t.id, (${fits}) IS TRUE AS fits FROM ${qualified} AS t WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxWaiting + 1}
     ), planned AS MATERIALIZED (
       SELECT t.id, (${fits}) IS TRUE AS fits FROM ${qualified} AS t WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxWaiting + 1}
     )
     SELECT (SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) ${maxWaiting} FROM due)
       OR (SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) ${maxWaiting} FROM planned) AS many,
       ARRAY(SELECT id::pg_catalog.text FROM (TABLE due UNION ALL TABLE planned) AS w WHERE w.fits ${older}
         ORDER BY w.id DESC LIMIT ${limit + 1}) AS ids`,
    values,
  );
  const { ids, many } = rows[0] ?? { ids: [], many: true };
  return many ? null : ids;
}

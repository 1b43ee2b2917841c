import { queryOne } from "../queryOne.js";
import type { TaskSummary } from "../types.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import {
  dueOrderSql,
  isDueSql,
  isPlannedSql,
  isoTimeSql,
  millisecondsSql,
  isActiveSql,
  isHeldSql,
  isToLookUpSql,
} from "../sqlFragments.js";
import { listFilterSql, type ListFilter } from "../taskFilter.js";
import { windows, type WindowRow } from "./scan.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";

export interface ListRequest {
  readonly filter: ListFilter;
  readonly limit: number;
  readonly before?: string | undefined;
  readonly after?: string | undefined;
  readonly oldestFirst?: boolean | undefined;
  readonly waitingFor?: string | undefined;
  /** Maximum length of input, output and error. */
  readonly characters: number;
}

export interface TaskList {
  readonly tasks: TaskSummary[];
  /** Value of `before`, or of `after` if the oldest come first, for the next page. Null after the last page. */
  readonly next: string | null;
  readonly scanned: number;
}

/**
 * No index supports filters, so with a filter, rows are scanned one window at a time. Tasks that wait for another one
 * are found by indexes. So are tasks in PLAN, newest first, if the first window has too few of them.
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
  const { oldestFirst = false } = request;
  const isFiltered = Object.keys(request.filter).length > 0;
  const ids: string[] = [];
  let scanned = 0;
  const wanted = (): number => limit - ids.length + 1;
  const read = (size: number, from: string | undefined): Promise<Window> =>
    readWindow(client, table, { ...request, ...(oldestFirst ? { after: from } : { before: from }) }, size, wanted());
  const listed = async (next: string | null): Promise<TaskList> => ({
    tasks: await readSummaries(client, table, ids.slice(0, limit), characters),
    next,
    scanned,
  });
  const start = oldestFirst ? request.after : request.before;
  for await (const found of windows(read, start, isFiltered ? undefined : wanted)) {
    const isFirst = scanned === 0;
    scanned += found.scanned;
    ids.push(...found.ids);
    if (ids.length > limit) return await listed(ids[limit - 1] ?? null);
    if (found.isLast) break;
    const waiting = isFirst && areIndexed(request) ? await readWaitingIds(client, table, request) : null;
    if (waiting !== null) {
      // The window may also have tasks that were set to PLAN while they run.
      const all = [...new Set([...ids, ...waiting])].toSorted((a, b) => (BigInt(a) > BigInt(b) ? -1 : 1));
      ids.splice(0, ids.length, ...all);
      return await listed(ids[limit] === undefined ? null : (ids[limit - 1] ?? null));
    }
    if (enough(scanned)) return await listed(found.last);
  }
  return await listed(null);
}

/** Yields the ids of all matching tasks in ascending order, some at a time. Each window is read by a call of `run`. */
export async function* findMatching(
  run: <T>(work: (client: Queryable) => Promise<T>) => Promise<T>,
  table: TaskTable,
  request: Pick<ListRequest, "filter" | "waitingFor">,
): AsyncGenerator<string[], void> {
  const read = async (size: number, after: string | undefined): Promise<Window> =>
    await run((client) => readWindow(client, table, { ...request, after, oldestFirst: true }, size, size));
  for await (const { ids } of windows(read, undefined)) yield ids;
}

interface Window extends WindowRow {
  readonly ids: string[];
}

/** @returns the ids of up to `wanted` matching tasks among the next `size` rows */
async function readWindow(
  client: Queryable,
  table: TaskTable,
  request: WindowRequest,
  size: number,
  wanted: number,
): Promise<Window> {
  const values: unknown[] = [];
  const oldestFirst = request.oldestFirst === true;
  return await queryOne<Window>(
    client,
    `WITH seen AS MATERIALIZED (${windowSql(table, request, { size, values })})
     SELECT pg_catalog.count(*)::integer AS scanned, coalesce(pg_catalog.${oldestFirst ? "max" : "min"}(id)::pg_catalog.text, '') AS last,
       ARRAY(SELECT id::pg_catalog.text FROM seen WHERE fits ORDER BY seen.id ${oldestFirst ? "ASC" : "DESC"} LIMIT ${wanted}) AS ids FROM seen`,
    values,
  );
}

type WindowRequest = Omit<ListRequest, "limit" | "characters">;

/** A query for the next `size` rows `t`: their `id`, whether each `fits` the filter, and other columns. */
export function windowSql(
  table: TaskTable,
  { filter, waitingFor, before, after, oldestFirst }: WindowRequest,
  { size, columns: more, values }: { readonly size: number; readonly columns?: string; readonly values: unknown[] },
): string {
  const fits = listFilterSql(table, filter, values);
  const limits: string[] = [];
  if (before !== undefined) limits.push(`t.id OPERATOR(pg_catalog.<) $${values.push(before)}::bigint`);
  if (after !== undefined) limits.push(`t.id OPERATOR(pg_catalog.>) $${values.push(after)}::bigint`);
  if (waitingFor !== undefined) {
    limits.push(
      `t.id OPERATOR(pg_catalog.=) ANY (ARRAY(${waitingIdsSql(table, `$${values.push(waitingFor)}::bigint`)}))`,
    );
  }
  const where = limits.length === 0 ? "" : `WHERE ${limits.join(" AND ")}`;
  const direction = oldestFirst === true ? "ASC" : "DESC";
  const selected = ["t.id", `(${fits}) IS TRUE AS fits`, ...(more === undefined ? [] : [more])].join(", ");
  return `SELECT ${selected} FROM ${table.qualified} AS t ${where} ORDER BY t.id ${direction} LIMIT ${size}`;
}

/**
 * A task waits for those in the table of dependencies; before the lookup, such as while no manager runs, for those in
 * `after` that have not ended.
 *
 * @param predecessor SQL of the id of the task
 */
const waitingIdsSql = ({ qualified, qualifiedDependencies }: TaskTable, predecessor: string): string => `
  SELECT t.id FROM ${qualified} AS t WHERE t.wait OPERATOR(pg_catalog.=) 0 AND ${isHeldSql} AND t.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT d.task FROM ${qualifiedDependencies} AS d WHERE d.predecessor OPERATOR(pg_catalog.=) ${predecessor} AND NOT d.failed))
  UNION
  SELECT t.id FROM ${qualified} AS t WHERE ${isToLookUpSql} AND t.after OPERATOR(pg_catalog.@>) ARRAY[${predecessor}]
    AND EXISTS (SELECT FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ${predecessor} AND ${isActiveSql})`;

const maxWaiting = 20_000;

/** Whether the indexes of waiting tasks have all tasks of the list, in its order. */
const areIndexed = ({ filter: { states }, oldestFirst, after, waitingFor }: ListRequest): boolean =>
  states?.length === 1 &&
  states[0] === "PLAN" &&
  oldestFirst !== true &&
  after === undefined &&
  waitingFor === undefined;

/**
 * Null if too many tasks wait. A task that was set to PLAN while it runs is in neither index, and waits after its run.
 */
async function readWaitingIds(
  client: Queryable,
  table: TaskTable,
  { filter, limit, before }: ListRequest,
): Promise<string[] | null> {
  const values: unknown[] = [];
  const { qualified } = table;
  const fits = listFilterSql(table, filter, values);
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
  const { ids, many } = await queryOne<{ ids: string[]; many: boolean }>(
    client,
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
  return many ? null : ids;
}

/** In bytes. Some server versions decompress the whole value to read its beginning, so longer ones are not read. */
const maxReadOutputBytes = 1_000_000;

const finite = (time: string): string => `pg_catalog.isfinite(${time}::pg_catalog.timestamptz)`;

/** How long a task ran, or has been running. */
export const tookMsSql = millisecondsSql(
  `CASE WHEN NOT ${finite("t.start")} THEN NULL WHEN t.owner IS NOT NULL THEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) t.start::pg_catalog.timestamptz
      WHEN ${finite("t.stop")} THEN t.stop::pg_catalog.timestamptz OPERATOR(pg_catalog.-) t.start::pg_catalog.timestamptz END`,
);

/** `substr` reads only the needed part of a stored value. */
const columns = (characters: number): string => `
  t.id::pg_catalog.text AS id, t.parent::pg_catalog.text AS parent, t.state::pg_catalog.text AS state, t."group"::pg_catalog.text AS "group",
  ${isoTimeSql("t.plan")} AS plan, ${isoTimeSql("t.start")} AS start, ${isoTimeSql("t.stop")} AS stop,
  ${tookMsSql} AS "tookMs",
  t.ready, t.owner IS NOT NULL AS claimed, t.pid::pg_catalog.float8 AS pid, t.max::pg_catalog.float8 AS max,
  CASE WHEN t.repeat OPERATOR(pg_catalog.>) interval '0' THEN t.repeat::pg_catalog.text END AS repeat, t.remote::pg_catalog.text AS remote,
  t.rule, t.key, t.role::pg_catalog.text AS role, t.retry, t.attempt, (${isHeldSql}) IS TRUE AS held,
  pg_catalog.substr(t.input::pg_catalog.text, 1, ${characters}) AS input, pg_catalog.substr(t.error::pg_catalog.text, 1, ${characters}) AS error,
  CASE WHEN pg_catalog.octet_length(t.output::pg_catalog.text) OPERATOR(pg_catalog.<=) ${maxReadOutputBytes}
    THEN pg_catalog.substr(t.output::pg_catalog.text, 1, ${characters}) END AS output,
  pg_catalog.octet_length(t.output::pg_catalog.text)::pg_catalog.float8 AS "outputBytes"`;

/** In the order of `ids`. Ids for which there is no task are skipped. */
export async function readSummaries(
  client: Queryable,
  table: TaskTable,
  ids: readonly string[],
  characters: number,
): Promise<TaskSummary[]> {
  if (ids.length === 0) return [];
  const { rows } = await client.query<TaskSummary>(
    `SELECT ${columns(characters)} FROM ${table.qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])`,
    [ids],
  );
  const found = new Map(rows.map((row) => [row.id, masked(row)]));
  return ids.flatMap((id) => found.get(id) ?? []);
}

const masked = (row: TaskSummary): TaskSummary =>
  row.remote === null ? row : { ...row, remote: maskConnectionString(row.remote) };

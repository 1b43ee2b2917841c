import { queryOne } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { atLeast, exactly, type Count } from "../../shared/count.js";
import { maxCounted } from "./counts.js";
import { readSummaries, tookMsSql, windowSql, type ListRequest, type TaskList } from "./listTasks.js";
import { windows, type WindowRow } from "./scan.js";

type Request = Pick<ListRequest, "filter" | "waitingFor">;

interface Run {
  readonly id: string;
  readonly ms: number;
}

/**
 * The matching tasks that ran longest, or have been running longest, among the rows before `before`, newest first. If the
 * scan ends before it has read all rows, `next` is where the next one goes on.
 *
 * @param enough the scan ends after a window if this returns true
 */
export async function listSlowest(
  client: Queryable,
  table: TaskTable,
  request: Request & Pick<ListRequest, "limit" | "before" | "characters">,
  enough: () => boolean,
): Promise<TaskList> {
  const { limit, characters } = request;
  const read = async (size: number, before: string | undefined): Promise<WindowRow & { runs: Run[] }> => {
    const values: unknown[] = [];
    const window = windowSql(table, { ...request, before }, { size, columns: `${tookMsSql} AS ms`, values });
    return await queryOne(
      client,
      `WITH seen AS MATERIALIZED (${window}), runs AS (
         SELECT id, ms FROM seen WHERE fits AND ms IS NOT NULL ORDER BY ms DESC, id DESC LIMIT ${limit}
       )
       SELECT count(*)::integer AS scanned, coalesce(min(id)::text, '') AS last,
         coalesce((SELECT jsonb_agg(jsonb_build_object('id', id::text, 'ms', ms)) FROM runs), '[]') AS runs FROM seen`,
      values,
    );
  };
  let slowest: Run[] = [];
  let scanned = 0;
  let next: string | null = null;
  for await (const found of windows(read, request.before)) {
    scanned += found.scanned;
    slowest = [...slowest, ...found.runs].toSorted((one, other) => other.ms - one.ms).slice(0, limit);
    if (found.isLast || !enough()) continue;
    next = found.last;
    break;
  }
  const ids = slowest.map(({ id }) => id);
  return { tasks: await readSummaries(client, table, ids, characters), next, scanned };
}

/**
 * Exact up to `maxCounted`.
 *
 * @param enough the scan ends after a window if this returns true
 */
export async function countMatches(
  client: Queryable,
  table: TaskTable,
  request: Request,
  enough: () => boolean,
): Promise<Count> {
  const read = async (size: number, before: string | undefined): Promise<WindowRow & { matches: number }> => {
    const values: unknown[] = [];
    return await queryOne(
      client,
      `WITH seen AS MATERIALIZED (${windowSql(table, { ...request, before }, { size, values })})
       SELECT count(*)::integer AS scanned, coalesce(min(id)::text, '') AS last,
         (count(*) FILTER (WHERE fits))::integer AS matches FROM seen`,
      values,
    );
  };
  let matches = 0;
  for await (const found of windows(read, undefined)) {
    matches += found.matches;
    if (matches > maxCounted) return atLeast(maxCounted);
    if (!found.isLast && enough()) return atLeast(matches);
  }
  return exactly(matches);
}

import { PgTaskError } from "../../shared/errors.js";
import { listTasks, type ListRequest, type TaskList } from "../../tasks/queries/listTasks.js";
import type { TaskFilter, TaskSummary } from "../../tasks/types.js";
import type { OpenTable } from "../support/openTable.js";

/** How far to scroll: by this many tasks, towards older ones if positive; or to an end of the list. */
export type Scroll = number | "newest" | "oldest";

/** A part of the list of matching tasks, newest first. */
export interface Page {
  readonly filter: TaskFilter;
  readonly tasks: readonly TaskSummary[];
  /** Id of the first task, or null if the page follows the newest tasks. */
  readonly top: string | null;
  /** If the search for tasks was given up, how many rows had been searched until then. Otherwise null. */
  readonly searched: number | null;
}

export interface PageRequest {
  readonly filter: TaskFilter;
  /** Id of the first task of the previous page, or null if it followed the newest tasks. */
  readonly top: string | null;
  readonly scroll: Scroll;
  /** Number of tasks in a page. */
  readonly rows: number;
  /** Maximum length of input, output and error, in characters. */
  readonly characters: number;
}

/**
 * Without an index for the filter, a search can take long. It is given up after this time, so that a search for rare
 * tasks in a large table does not keep the server busy all the time.
 */
const searchMs = 1_000;

/** Reads the page that scrolling leads to. Scrolling back to the newest task makes the page follow the newest tasks. */
export async function readPage(opened: OpenTable, request: PageRequest): Promise<Page> {
  const { filter, top, scroll, rows } = request;
  if (scroll === "oldest") {
    const oldest = await search(opened, request, { limit: rows, oldestFirst: true });
    const tasks = oldest.tasks.toReversed();
    return { filter, tasks, top: tasks[0]?.id ?? null, searched: oldest.searched };
  }
  if (scroll === "newest") return await readFrom(opened, request, null, 0);
  if (scroll >= 0 || top === null) return await readFrom(opened, request, top, Math.max(0, scroll));
  const newer = await search(opened, request, { limit: -scroll, oldestFirst: true, after: top });
  if (newer.tasks.length < -scroll && newer.searched === null) return await readFrom(opened, request, null, 0);
  return await readFrom(opened, request, newer.tasks.at(-1)?.id ?? top, 0);
}

/** Reads the page that starts `skip` tasks below the task `top`. The last page is as full as the pages before it. */
async function readFrom(opened: OpenTable, request: PageRequest, top: string | null, skip: number): Promise<Page> {
  const { filter, rows } = request;
  const before = top === null ? undefined : String(BigInt(top) + 1n);
  const { tasks, searched } = await search(opened, request, { limit: rows + skip, before });
  const first = Math.min(skip, Math.max(0, tasks.length - rows));
  const page = tasks.slice(first, first + rows);
  return { filter, tasks: page, top: top === null && first === 0 ? null : (page[0]?.id ?? top), searched };
}

async function search(
  { client, table }: OpenTable,
  { filter, characters }: PageRequest,
  range: Pick<ListRequest, "limit" | "before" | "after" | "oldestFirst">,
): Promise<{ readonly tasks: TaskList["tasks"]; readonly searched: number | null }> {
  const end = performance.now() + searchMs;
  const request = { filter, characters, ...range };
  const { tasks, next, scanned } = await listTasks(client, table, request, () => performance.now() >= end);
  return { tasks, searched: next !== null && tasks.length < range.limit ? scanned : null };
}

/** Whether the error says that the filter is invalid, such as a time that the server cannot read. */
export const isInvalidFilter = (error: unknown): boolean => error instanceof PgTaskError && error.code === "USAGE";

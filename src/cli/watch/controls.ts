import { omitUndefined } from "../../shared/omitUndefined.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";
import type { TaskFilter, TaskSummary } from "../../tasks/types.js";
import { parseStates } from "../support/options.js";
import { listTasks, type ListRequest, type TaskList } from "../../tasks/queries/listTasks.js";
import type { OpenTable } from "../support/openTable.js";

const prompts = new Map<string, Prompt["field"]>([
  ["/", "text"],
  ["s", "states"],
  ["g", "group"],
]);

/** Ends before the last character, which may have several code points. */
const withoutLast = (text: string): string => text.slice(0, [...new Intl.Segmenter().segment(text)].at(-1)?.index ?? 0);

interface Prompt {
  readonly field: "text" | "states" | "group";
  readonly typed: string;
  readonly error: string | null;
}

export class Controls {
  #filter: TaskFilter;
  #prompt: Prompt | null = null;
  #scroll: Scroll = 0;

  constructor(filter: TaskFilter) {
    this.#filter = filter;
  }

  get filter(): TaskFilter {
    return this.#filter;
  }

  get line(): string {
    if (this.#prompt === null) {
      const clear = Object.keys(this.#filter).length === 0 ? "" : "Esc no filter  ";
      return `${clear}q quits  ↑ ↓ PgUp PgDn Home End  / text  s states  g group`;
    }
    const { field, typed, error } = this.#prompt;
    return `${field}: ${typed}_  ${error ?? "Enter filters, empty for all; Esc cancels"}`;
  }

  takeScroll(): Scroll {
    const scroll = this.#scroll;
    this.#scroll = 0;
    return scroll;
  }

  /** @returns what the key changes: nothing, only the last line, or which tasks are shown; or that it quits */
  press(name: string, text: string, rows: number): "nothing" | "line" | "tasks" | "quit" {
    if (this.#prompt !== null) return this.#type(this.#prompt, name, text);
    const field = prompts.get(text);
    if (field !== undefined) {
      const current = this.#filter[field] ?? "";
      this.#prompt = { field, typed: typeof current === "string" ? current : current.join(","), error: null };
      return "line";
    }
    if (name === "q") return "quit";
    if (name === "escape") {
      if (Object.keys(this.#filter).length === 0) return "quit";
      return this.#setFilter({});
    }
    const scroll = scrollOf(name, rows);
    if (scroll === 0) return "nothing";
    if (typeof scroll === "string") this.#scroll = scroll;
    else if (typeof this.#scroll === "number") this.#scroll += scroll;
    return "tasks";
  }

  #type(prompt: Prompt, name: string, text: string): "line" | "tasks" {
    const { field, typed } = prompt;
    if (name === "escape") this.#prompt = null;
    else if (name === "return" || name === "enter") return this.#apply(field, typed);
    else if (name === "backspace") this.#prompt = { field, typed: withoutLast(typed), error: null };
    else if (name === "ctrl-u") this.#prompt = { field, typed: "", error: null };
    else this.#prompt = { field, typed: typed + text, error: null };
    return "line";
  }

  #apply(field: Prompt["field"], typed: string): "line" | "tasks" {
    const value = typed === "" ? undefined : typed;
    try {
      const states = field === "states" && value !== undefined ? parseStates(value) : undefined;
      return this.#setFilter(omitUndefined({ ...this.#filter, [field]: states ?? value }));
    } catch (error) {
      this.#prompt = { field, typed, error: errorMessage(error) };
      return "line";
    }
  }

  #setFilter(filter: TaskFilter): "tasks" {
    this.#filter = filter;
    this.#prompt = null;
    this.#scroll = "newest";
    return "tasks";
  }
}

/** The keys are those of `less`, except for its letter g. */
function scrollOf(name: string, rows: number): Scroll {
  const page = Math.max(1, rows - 1);
  switch (name) {
    case "down":
    case "j":
      return 1;
    case "up":
    case "k":
      return -1;
    case "pagedown":
    case "space":
    case "ctrl-f":
      return page;
    case "pageup":
    case "b":
    case "ctrl-b":
      return -page;
    case "home":
      return "newest";
    case "end":
      return "oldest";
    default:
      return 0;
  }
}

/** How far to scroll: by this many tasks, towards older ones if positive; or to an end of the list. */
type Scroll = number | "newest" | "oldest";

/** A part of the list of matching tasks, newest first. */
export interface Page {
  readonly filter: TaskFilter;
  readonly tasks: readonly TaskSummary[];
  /** Id of the first task, or null if the page follows the newest tasks. */
  readonly top: string | null;
  /** If the search for tasks was given up, how many rows had been searched until then. Otherwise null. */
  readonly searched: number | null;
}

interface PageRequest {
  readonly filter: TaskFilter;
  /** Id of the first task of the previous page, or null if it followed the newest tasks. */
  readonly top: string | null;
  readonly scroll: Scroll;
  readonly rows: number;
  readonly characters: number;
}

/** A search for rare tasks in a large table is given up, so that it does not keep the server busy all the time. */
const searchMs = 1_000;

/** Scrolling back to the newest task makes the page follow the newest tasks. */
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

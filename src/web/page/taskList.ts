import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TaskList } from "../../tasks/queries/listTasks.js";
import { Actions } from "./actions.js";
import { mayChange } from "./apiClient.js";
import { BulkBar } from "./bulk.js";
import { shownColumns, type ColumnName } from "./columns.js";
import { useKeptFocus } from "./focus.js";
import { ListHead, orderText, SelectBox, slowestLimit, sortTasks } from "./listHead.js";
import { SelectionBar, useSelection, type Selection } from "./selection.js";
import { Filters } from "./taskFilters.js";
import { changedQuery, navigate, pickedQuery, setQuery } from "./router.js";
import { bytesText, fullTimeText, relativeTimeText, timeText, numberText } from "./format.js";
import { GroupLink, StaleNotice, StateBadge } from "./parts.js";
import { useResource } from "./resource.js";
import { waitsForOthers } from "./taskTimes.js";
import { firstLine } from "../../shared/firstLine.js";
import { formatDuration, formatWholeSeconds } from "../../shared/formatDuration.js";
import { printableLine, printableText } from "../../shared/printable.js";

const filters = "state group key role share text from to endedFrom endedTo schedule waitingFor".split(" ");

export function TaskListView(props: { id: string; hasShares: boolean; query: URLSearchParams; now: number }): VNode {
  const { id, hasShares, query, now } = props;
  const request = pickedQuery(query, [...filters, "order", "before", "after"]);
  if (request.get("order") === "slowest") request.set("limit", String(slowestLimit));
  // Under load, all rows are new each time.
  const tasks = useResource<TaskList>(`/tables/${id}/tasks?${request.toString()}`, { table: id, minIntervalMs: 1_000 });
  const { value, busy, refresh } = tasks;
  const change = (changes: Readonly<Record<string, string>>): void => {
    search.stop();
    setQuery(changedQuery(query, { ...firstPage, ...changes }));
  };
  const search = useSearch(tasks, (from) => setQuery(furtherQuery(query, from)));
  const filter = pickedQuery(query, filters);
  const filtered = [...filter].length > 0;
  const shown = sortTasks(value?.tasks ?? [], query.get("sort"));
  const selection = useSelection(filter.toString(), shown);
  const order = value === null ? null : orderText(query, value);
  return html`<main id="main" class="tasks" aria-busy=${busy || search.isRunning}>
    <h1 class="hidden">Tasks</h1>
    <${Filters} id=${id} hasShares=${hasShares} query=${query} tasks=${shown} change=${change} />
    <${StaleNotice} of=${tasks} />
    <${SelectionBar} table=${id} selection=${selection} shown=${shown} done=${refresh} />
    ${filtered && mayChange.value && html`<${BulkBar} key=${filter.toString()} table=${id} filter=${filter} done=${refresh} />`}
    ${order !== null && shown.length > 0 && html`<p class="note">${order}</p>`}
    ${value !== null && html`<${Rows} id=${id} tasks=${shown} now=${now} refresh=${refresh} selection=${selection} query=${query} />`}
    ${value?.tasks.length === 0 && html`<p class="empty">${filtered ? noMatchText(value, search) : noTasks}</p>`}
    <${Paging} id=${id} query=${query} list=${value} search=${search} />
  </main>`;
}

const noTasks = "No tasks yet. Insert a row into the table to create one.";

const noMatchText = ({ scanned, next }: TaskList, search: Search): string =>
  `No matching tasks. ${numberText(search.scanned + scanned)} rows searched${next === null ? "" : " so far"}.`;

const firstPage = { before: "", after: "" } as const;

const isOldestFirst = (query: URLSearchParams): boolean => query.get("order") === "oldest";

const isLaterPage = (query: URLSearchParams): boolean => query.has("before") || query.has("after");

const furtherQuery = (query: URLSearchParams, from: string): URLSearchParams =>
  changedQuery(query, { [isOldestFirst(query) ? "after" : "before"]: from });

function Paging(props: { id: string; query: URLSearchParams; list: TaskList | null; search: Search }): VNode {
  const { id, query, list, search } = props;
  const show = (next: URLSearchParams): void => navigate(`/tables/${id}/tasks?${next.toString()}`);
  const first = (): void => {
    search.stop();
    show(changedQuery(query, firstPage));
  };
  const oldestFirst = isOldestFirst(query);
  return html`<nav class="paging" aria-label="Pages">
    ${isLaterPage(query) && html`<button onClick=${first}>⇤ ${oldestFirst ? "Oldest" : "Newest"}</button>`}
    ${search.isRunning && html`<button onClick=${search.stop}>Stop search</button>`}
    ${
      !search.isRunning &&
      list !== null &&
      list.next !== null &&
      (list.tasks.length === 0
        ? html`<button onClick=${search.start}>Continue search</button>`
        : html`<button onClick=${() => show(furtherQuery(query, list.next ?? ""))}>
            ${oldestFirst ? "Newer" : query.get("order") === "slowest" ? "Search older rows" : "Older"} →
          </button>`)
    }
  </nav>`;
}

interface Search {
  readonly isRunning: boolean;
  /** Rows that earlier requests of this search have read. */
  readonly scanned: number;
  readonly start: () => void;
  readonly stop: () => void;
}

/** Requests further rows until tasks are found, no rows are left, or the search is stopped. */
function useSearch(
  { value, busy, problem }: { value: TaskList | null; busy: boolean; problem: string | null },
  searchFrom: (from: string) => void,
): Search {
  const [isRunning, setIsRunning] = useState(false);
  const [scanned, setScanned] = useState(0);
  useEffect(() => {
    if (problem !== null) setIsRunning(false);
    if (!isRunning || busy || value === null || problem !== null) return;
    if (value.tasks.length > 0 || value.next === null) {
      setIsRunning(false);
      return;
    }
    setScanned(scanned + value.scanned);
    searchFrom(value.next);
  }, [isRunning, busy, value, problem]);
  const stop = (): void => {
    setIsRunning(false);
    setScanned(0);
  };
  return { isRunning, scanned, start: () => setIsRunning(true), stop };
}

function Rows(props: {
  id: string;
  tasks: readonly TaskSummary[];
  now: number;
  refresh: () => void;
  selection: Selection;
  query: URLSearchParams;
}): VNode | null {
  const { id, tasks, now, refresh, selection, query } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  useKeptFocus(() => body.current, rememberPlace);
  // Tasks that were added to the list are highlighted, unless the whole list was replaced by another filter or page.
  const shownIds = useRef<ReadonlySet<string>>(new Set());
  const previousIds = shownIds.current;
  useEffect(() => {
    shownIds.current = new Set(tasks.map((task) => task.id));
  }, [tasks]);
  if (tasks.length === 0) return null;
  const isSameList = tasks.some((task) => previousIds.has(task.id));
  return html`<div class="panel scroll">
    <table class="list" style=${{ "--digits": Math.max(...tasks.map((task) => task.id.length)) }}>
      <caption class="hidden">
        Tasks
      </caption>
      <${ListHead} query=${query} tasks=${tasks} selection=${selection} />
      <tbody ref=${body}>
        ${tasks.map(
          (task) =>
            html`<tr
              key=${task.id}
              data-id=${task.id}
              data-state=${task.state}
              class=${isSameList && !previousIds.has(task.id) ? "new" : ""}
              data-selected=${selection.has(task.id)}
            >
              <th scope="row">
                <${SelectBox} task=${task} selection=${selection} />
                <a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a>
              </th>
              ${shownColumns.value.map(({ name }) => cells[name]({ table: id, task, now, filter: pickedQuery(query, filters) }))}
              <td class="do"><${Actions} table=${id} task=${task} done=${refresh} /></td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

type Cell = (row: {
  readonly table: string;
  readonly task: TaskSummary;
  readonly now: number;
  readonly filter: URLSearchParams;
}) => VNode;

const textCell =
  (name: ColumnName, title: string, textOf: (task: TaskSummary) => string | null): Cell =>
  ({ task }) => {
    const text = textOf(task) ?? "";
    return html`<td key=${name} class="extra" data-title=${title} title=${printableText(text)}>
      ${printableLine(text)}
    </td>`;
  };

const timeCell = (name: "start" | "stop", title: string): Cell =>
  textCell(name, title, (task) => {
    const at = task[name];
    return at === null ? null : timeText(at);
  });

const cells: Readonly<Record<ColumnName, Cell>> = {
  state: ({ task }) => html`<td key="state"><${StateBadge} task=${task} /></td>`,
  group: ({ table, task, filter }) =>
    html`<td key="group" class="group"><${GroupLink} table=${table} group=${task.group} filter=${filter} /></td>`,
  key: textCell("key", "Key", ({ key }) => key),
  role: textCell("role", "Role", ({ role }) => role),
  input: ({ task }) =>
    html`<td key="input" class="sql" title=${printableText(task.input)}>
      ${task.remote !== null && html`<span class="tag">remote</span>`}${printableLine(task.input.replace(/\s+/g, " "))}
    </td>`,
  result: ({ task }) =>
    html`<td
      key="result"
      class=${task.error === null ? "result" : "result failed"}
      title=${printableText(task.error ?? task.output ?? "")}
    >
      ${printableLine(resultText(task))}
    </td>`,
  plan: ({ task, now }) =>
    html`<td key="plan" class="when" title=${fullTimeText(task.plan)}>${planText(task, now)}</td>`,
  start: timeCell("start", "Start"),
  stop: timeCell("stop", "Stop"),
  run: ({ task, now }) => html`<td key="run" class="run">${runTime(task, now)}</td>`,
  attempt: textCell("attempt", "Failed tries", ({ attempt }) => (attempt === null ? null : numberText(attempt))),
  parent: ({ table, task: { parent } }) =>
    html`<td key="parent" class="extra" data-title="Parent">
      ${parent !== null && html`<a href=${`/tables/${table}/tasks/${parent}`}>${parent}</a>`}
    </td>`,
  pid: textCell("pid", "Backend", ({ pid }) => (pid === null ? null : String(pid))),
};

/** Returns what finds the same element of the row that has then taken the place. */
function rememberPlace(focused: HTMLElement): () => HTMLElement | null {
  const index = focused.closest("tr")?.sectionRowIndex ?? 0;
  const kind = focused.matches("input") ? "input" : "a";
  return () => {
    const rows = document.querySelectorAll<HTMLElement>("main tr[data-id]");
    const row = rows[Math.min(index, rows.length - 1)];
    return row?.querySelector<HTMLElement>(kind) ?? document.querySelector<HTMLElement>("main .filters button");
  };
}

function resultText({ error, output, outputBytes }: TaskSummary): string {
  if (error !== null) return firstLine(error.trim()).replace(/^ERROR:\s+/, "");
  return output?.trim().replace(/\s*\n\s*/g, " ⏎ ") ?? (outputBytes === null ? "" : bytesText(outputBytes));
}

function runTime({ state, start, tookMs }: TaskSummary, now: number): string {
  if (state !== "WORK" || start === null) return tookMs === null ? "" : formatDuration(Math.max(0, tookMs));
  return formatWholeSeconds(Math.max(0, now - Date.parse(start)));
}

function planText(task: TaskSummary, now: number): string {
  if (waitsForOthers(task)) return "after the others";
  return task.state === "PLAN" ? relativeTimeText(task.plan, now) : timeText(task.plan);
}

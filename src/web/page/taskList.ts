import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TaskList } from "../../tasks/queries/listTasks.js";
import { Actions } from "./actions.js";
import { navigate, setQuery } from "./router.js";
import { bytesText, fullTimeText, relativeTimeText, timeText, numberText } from "./format.js";
import { GroupLink } from "./groupLink.js";
import { useResource } from "./resource.js";
import { SearchBox } from "./searchBox.js";
import { StateBadge } from "./stateBadge.js";
import { TableHead } from "./tableHead.js";
import { waitsForOthers } from "./taskTimes.js";
import { StaleNotice } from "./staleNotice.js";
import { firstLine } from "../../shared/firstLine.js";
import { formatDuration, formatWholeSeconds } from "../../shared/formatDuration.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { taskStates } from "../../shared/taskState.js";

const filters = ["state", "group", "text", "waitingFor", "before"] as const;

/** Shows the tasks of a table, newest first, and updates the list live. */
export function TaskListView({ id, query, now }: { id: string; query: URLSearchParams; now: number }): VNode {
  const request = new URLSearchParams();
  for (const name of filters) {
    const value = query.get(name);
    if (value !== null && value !== "") request.set(name, value);
  }
  const tasks = useResource<TaskList>(`/tables/${id}/tasks?${request.toString()}`, { table: id });
  const { value, busy, refresh } = tasks;
  const change = (name: string, to: string): void => {
    const next = new URLSearchParams(query);
    search.stop();
    next.delete("before");
    if (to === "") next.delete(name);
    else next.set(name, to);
    setQuery(next);
  };
  const older = (before: string): string => {
    const next = new URLSearchParams(request);
    next.set("before", before);
    return `/tables/${id}/tasks?${next.toString()}`;
  };
  const search = useSearch(tasks, (before) => {
    const next = new URLSearchParams(request);
    next.set("before", before);
    setQuery(next);
  });
  const filtered = filters.some((name) => name !== "before" && request.has(name));
  return html`<main id="main" class="tasks" aria-busy=${busy || search.isRunning}>
    <h1 class="hidden">Tasks</h1>
    <${Filters} query=${query} change=${change} />
    <${StaleNotice} of=${tasks} />
    ${value !== null && html`<${Rows} id=${id} tasks=${value.tasks} now=${now} refresh=${refresh} />`}
    ${value?.tasks.length === 0 && html`<p class="empty">${filtered ? noMatchText(value, search) : noTasks}</p>`}
    <nav class="paging" aria-label="Pages">
      ${
        request.has("before") &&
        html`<button
          onClick=${() => {
            search.stop();
            navigate(`/tables/${id}/tasks?${without(request, "before").toString()}`);
          }}
        >
          ⇤ Newest
        </button>`
      }
      ${value !== null && nextPage(value, search, older)}
    </nav>
  </main>`;
}

const noTasks = "No tasks yet. Insert a row into the table to create one.";

const noMatchText = ({ scanned, next }: TaskList, search: Search): string =>
  `No matching tasks. ${numberText(search.scanned + scanned)} rows searched${next === null ? "" : " so far"}.`;

/** Returns the button that loads the next page or continues the search in further rows. */
function nextPage({ tasks, next }: TaskList, search: Search, older: (before: string) => string): VNode | null {
  if (search.isRunning) return html`<button onClick=${search.stop}>Stop search</button>`;
  if (next === null) return null;
  return tasks.length === 0
    ? html`<button onClick=${search.start}>Continue search</button>`
    : html`<button onClick=${() => navigate(older(next))}>Older →</button>`;
}

interface Search {
  readonly isRunning: boolean;
  /** Number of rows that earlier requests of this search have scanned. */
  readonly scanned: number;
  readonly start: () => void;
  readonly stop: () => void;
}

/**
 * Continues an active search: requests further rows until tasks are found, no rows are left, or the search is stopped.
 */
function useSearch(
  { value, busy, problem }: { value: TaskList | null; busy: boolean; problem: string | null },
  searchBefore: (before: string) => void,
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
    searchBefore(value.next);
  }, [isRunning, busy, value, problem]);
  const stop = (): void => {
    setIsRunning(false);
    setScanned(0);
  };
  return { isRunning, scanned, start: () => setIsRunning(true), stop };
}

function without(query: URLSearchParams, name: string): URLSearchParams {
  const rest = new URLSearchParams(query);
  rest.delete(name);
  return rest;
}

function Filters(props: { query: URLSearchParams; change: (name: string, to: string) => void }): VNode {
  const { query, change } = props;
  const waitingFor = query.get("waitingFor") ?? "";
  const selected = (query.get("state") ?? "").split(",").filter((state) => state !== "");
  const toggle = (state: string): void => {
    const next = selected.includes(state) ? selected.filter((each) => each !== state) : [...selected, state];
    change("state", next.join(","));
  };
  return html`<div class="filters" role="search">
    <span class="choice" role="group" aria-label="States">
      ${taskStates.map(
        (state) =>
          html`<button
            key=${state}
            class=${`s-${state}`}
            aria-pressed=${selected.includes(state)}
            onClick=${() => toggle(state)}
          >
            ${state}
          </button>`,
      )}
    </span>
    ${
      waitingFor !== "" &&
      html`<button title="Show all tasks" onClick=${() => change("waitingFor", "")}>
        Waiting for task ${waitingFor} ✕
      </button>`
    }
    <${SearchBox}
      placeholder="Group"
      label="Group (exact match)"
      text=${query.get("group") ?? ""}
      find=${(text: string) => change("group", text)}
    />
    <${SearchBox}
      wide=${true}
      placeholder="Text in input, data or error"
      label="Text in input, data or error"
      text=${query.get("text") ?? ""}
      find=${(text: string) => change("text", text)}
    />
  </div>`;
}

function Rows(props: { id: string; tasks: readonly TaskSummary[]; now: number; refresh: () => void }): VNode | null {
  const { id, tasks, now, refresh } = props;
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
        Tasks, newest first
      </caption>
      <${TableHead} titles=${["Id", "State", "Group", "Input", "Result", "Plan", "Run"]} hidden="Actions" />
      <tbody>
        ${tasks.map(
          (task) =>
            html`<tr
              key=${task.id}
              data-id=${task.id}
              data-state=${task.state}
              class=${isSameList && !previousIds.has(task.id) ? "new" : ""}
            >
              <th scope="row"><a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a></th>
              <td><${StateBadge} task=${task} /></td>
              <td class="group"><${GroupLink} table=${id} group=${task.group} /></td>
              <td class="sql" title=${printableText(task.input)}>
                ${task.remote !== null && html`<span class="tag">remote</span>`}${printableLine(task.input.replace(/\s+/g, " "))}
              </td>
              <td
                class=${task.error === null ? "result" : "result failed"}
                title=${printableText(task.error ?? task.output ?? "")}
              >
                ${printableLine(resultText(task))}
              </td>
              <td class="when" title=${fullTimeText(task.plan)}>${planText(task, now)}</td>
              <td class="run">${runTime(task, now)}</td>
              <td class="do"><${Actions} table=${id} task=${task} done=${refresh} /></td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
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

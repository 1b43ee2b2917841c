import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TaskSummary, Tasks } from "../api/schemas.js";
import { Actions } from "./actions.js";
import { goTo, setQuery } from "./router.js";
import {
  bytes,
  distance,
  pageDuration,
  firstLine,
  moment,
  number,
  wholeDuration,
} from "./format.js";
import { useResource } from "./resource.js";
import { SearchBox } from "./searchBox.js";
import { StateBadge } from "./stateBadge.js";
import { TableHead } from "./tableHead.js";
import { Trouble } from "./connectionProblem.js";

const states = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
const filters = ["state", "group", "text", "before"] as const;

/** The tasks of a table, newest first, as they are now. */
export function TaskListView({
  id,
  query,
  now,
}: {
  id: string;
  query: URLSearchParams;
  now: number;
}): VNode {
  const asked = new URLSearchParams();
  for (const name of filters) {
    const value = query.get(name);
    if (value !== null && value !== "") asked.set(name, value);
  }
  const tasks = useResource<Tasks>(`/tables/${id}/tasks?${asked.toString()}`, { table: id });
  const { value, busy, refresh } = tasks;
  const change = (name: string, to: string): void => {
    const next = new URLSearchParams(query);
    search.end();
    next.delete("before");
    if (to === "") next.delete(name);
    else next.set(name, to);
    setQuery(next);
  };
  const older = (before: string): string => {
    const next = new URLSearchParams(asked);
    next.set("before", before);
    return `/tables/${id}/tasks?${next.toString()}`;
  };
  const search = useSearch(tasks, (before) => {
    const next = new URLSearchParams(asked);
    next.set("before", before);
    setQuery(next);
  });
  const next = value?.next ?? null;
  const filtered = filters.some((name) => name !== "before" && asked.has(name));
  return html`<main class="tasks" aria-busy=${busy || search.on}>
    <h1 class="hidden">Tasks</h1>
    <${Filters} query=${query} change=${change} />
    <${Trouble} of=${tasks} />
    ${value !== null && html`<${Rows} id=${id} tasks=${value.tasks} now=${now} refresh=${refresh} />`}
    ${
      value !== null &&
      value.tasks.length === 0 &&
      html`<p class="empty">
        ${filtered ? "No task fits." : "No tasks yet: insert a row, and it is here."}
        ${filtered && ` Looked through ${number(search.looked + value.looked)} rows${value.next === null ? "" : " so far"}.`}
      </p>`
    }
    <nav class="paging" aria-label="Pages">
      ${
        asked.has("before") &&
        html`<button
          onClick=${() => {
            search.end();
            goTo(`/tables/${id}/tasks?${without(asked, "before").toString()}`);
          }}
        >
          ⇤ Newest
        </button>`
      }
      ${search.on && html`<button onClick=${search.end}>Stop looking</button>`}
      ${
        !search.on &&
        next !== null &&
        (value?.tasks.length === 0
          ? html`<button onClick=${search.begin}>Look further</button>`
          : html`<button onClick=${() => goTo(older(next))}>Older →</button>`)
      }
    </nav>
  </main>`;
}

interface Search {
  readonly on: boolean;
  /** Rows that were looked through before those of the answer that is shown. */
  readonly looked: number;
  readonly begin: () => void;
  readonly end: () => void;
}

/** Goes on from where an answer ended that has no tasks, until one has some, there are no more rows, or it is ended. */
function useSearch(
  { value, busy, problem }: { value: Tasks | null; busy: boolean; problem: string | null },
  goOn: (before: string) => void,
): Search {
  const [on, setOn] = useState(false);
  const [looked, setLooked] = useState(0);
  useEffect(() => {
    if (problem !== null) setOn(false);
    if (!on || busy || value === null || problem !== null) return;
    if (value.tasks.length > 0 || value.next === null) {
      setOn(false);
      return;
    }
    setLooked(looked + value.looked);
    goOn(value.next);
  }, [on, busy, value, problem]);
  const end = (): void => {
    setOn(false);
    setLooked(0);
  };
  return { on, looked, begin: () => setOn(true), end };
}

function without(query: URLSearchParams, name: string): URLSearchParams {
  const rest = new URLSearchParams(query);
  rest.delete(name);
  return rest;
}

function Filters(props: {
  query: URLSearchParams;
  change: (name: string, to: string) => void;
}): VNode {
  const { query, change } = props;
  const chosen = (query.get("state") ?? "").split(",").filter((state) => state !== "");
  const toggle = (state: string): void => {
    const next = chosen.includes(state)
      ? chosen.filter((each) => each !== state)
      : [...chosen, state];
    change("state", next.join(","));
  };
  return html`<div class="filters" role="search">
    <span class="choice" role="group" aria-label="States">
      ${states.map(
        (state) =>
          html`<button
            key=${state}
            class=${`s-${state}`}
            aria-pressed=${chosen.includes(state)}
            onClick=${() => toggle(state)}
          >
            ${state}
          </button>`,
      )}
    </span>
    <${SearchBox}
      words="Group"
      label="Group, as a whole"
      text=${query.get("group") ?? ""}
      find=${(text: string) => change("group", text)}
    />
    <${SearchBox}
      wide=${true}
      words="Text in input, data or error"
      label="Text in input, data or error"
      text=${query.get("text") ?? ""}
      find=${(text: string) => change("text", text)}
    />
  </div>`;
}

function Rows(props: {
  id: string;
  tasks: readonly TaskSummary[];
  now: number;
  refresh: () => void;
}): VNode | null {
  const { id, tasks, now, refresh } = props;
  // Those that were not there before are pointed out; not all of them, when others are looked for.
  const seen = useRef<ReadonlySet<string>>(new Set());
  const before = seen.current;
  useEffect(() => {
    seen.current = new Set(tasks.map((task) => task.id));
  }, [tasks]);
  if (tasks.length === 0) return null;
  const following = tasks.some((task) => before.has(task.id));
  return html`<div class="panel scroll">
    <table class="list" style=${{ "--digits": Math.max(...tasks.map((task) => task.id.length)) }}>
      <caption class="hidden">
        Tasks, newest first
      </caption>
      <${TableHead}
        titles=${["Id", "State", "Group", "Input", "Result", "Plan", "Run"]}
        hidden="Actions"
      />
      <tbody>
        ${tasks.map(
          (task) =>
            html`<tr
              key=${task.id}
              data-id=${task.id}
              data-state=${task.state}
              class=${following && !before.has(task.id) ? "new" : ""}
            >
              <th scope="row"><a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a></th>
              <td><${StateBadge} task=${task} /></td>
              <td class="group">${task.group}</td>
              <td class="sql" title=${task.input}>
                ${task.remote !== null && html`<span class="tag">remote</span>`}${task.input.replace(/\s+/g, " ")}
              </td>
              <td
                class=${task.error === null ? "result" : "result failed"}
                title=${task.error ?? task.output ?? ""}
              >
                ${result(task)}
              </td>
              <td class="when" title=${task.plan}>
                ${task.state === "PLAN" ? distance(task.plan, now) : moment(task.plan)}
              </td>
              <td class="run">${runTime(task, now)}</td>
              <td class="do"><${Actions} table=${id} task=${task} done=${refresh} /></td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function result({ error, output, outputBytes }: TaskSummary): string {
  if (error !== null) return firstLine(error).replace(/^ERROR:\s+/, "");
  return (
    output?.trim().replace(/\s*\n\s*/g, " ⏎ ") ?? (outputBytes === null ? "" : bytes(outputBytes))
  );
}

function runTime({ state, start, tookMs }: TaskSummary, now: number): string {
  if (state !== "WORK" || start === null) return tookMs === null ? "" : pageDuration(tookMs);
  return wholeDuration(Math.max(0, now - Date.parse(start)));
}

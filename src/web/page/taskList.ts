import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { TaskSummary, Tasks } from "../schemas.js";
import { Actions } from "./actions.js";
import { goTo, setQuery } from "./address.js";
import { bytes, distance, duration, firstLine, moment, number } from "./format.js";
import { useResource } from "./resource.js";
import { SearchBox } from "./searchBox.js";
import { StateBadge } from "./stateBadge.js";
import { TableHead } from "./tableHead.js";

const states = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
const filters = ["state", "group", "text", "before"] as const;

/** The tasks of a table, newest first, as they are now. */
export function TaskList({
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
  const { value, problem, busy, refresh } = tasks;
  const change = (name: string, to: string): void => {
    const next = new URLSearchParams(query);
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
  const filtered = filters.some((name) => name !== "before" && asked.has(name));
  return html`<main class="tasks" aria-busy=${busy}>
    <h1 class="hidden">Tasks</h1>
    <${Filters} query=${query} change=${change} />
    ${problem !== null && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${value !== null && html`<${Rows} id=${id} tasks=${value.tasks} now=${now} refresh=${refresh} />`}
    ${
      value !== null &&
      value.tasks.length === 0 &&
      html`<p class="empty">
        ${filtered ? "No task fits." : "No tasks yet: insert a row, and it is here."}
        ${value.next !== null && ` Looked through ${number(value.looked)} rows so far.`}
      </p>`
    }
    <nav class="paging" aria-label="Pages">
      ${
        asked.has("before") &&
        html`<button
          onClick=${() => goTo(`/tables/${id}/tasks?${without(asked, "before").toString()}`)}
        >
          ⇤ Newest
        </button>`
      }
      ${
        (value?.next ?? null) !== null &&
        html`<button onClick=${() => goTo(older(value?.next ?? ""))}>
          ${value?.tasks.length === 0 ? "Look further" : "Older →"}
        </button>`
      }
    </nav>
  </main>`;
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
    <table class="list">
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
  if (state !== "WORK" || start === null) return tookMs === null ? "" : duration(tookMs);
  return duration(Math.max(0, Math.floor((now - Date.parse(start)) / 1000)) * 1000);
}

import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Descendant, Task, TaskPage as Page, TaskSummary } from "../api/schemas.js";
import { Actions } from "./actions.js";
import { bytes, distance, pageDuration, firstLine, moment } from "./format.js";
import { useResource } from "./resource.js";
import { StateBadge } from "./stateBadge.js";
import { Trouble } from "./connectionProblem.js";

/** Everything about one task. */
export function TaskView({
  id,
  task: taskId,
  now,
}: {
  id: string;
  task: string;
  now: number;
}): VNode {
  const asked = useResource<Page>(`/tables/${id}/tasks/${taskId}`, { table: id });
  const { value, problem, refresh } = asked;
  if (value === null || value.task.id !== taskId) {
    return html`<main class="task">
      ${
        problem !== null &&
        html`<p class="notice bad" role="alert">${problem}</p>
          <p><a href=${`/tables/${id}/tasks`}>All tasks</a></p>`
      }
    </main>`;
  }
  const { task } = value;
  return html`<main class="task">
    <${Trouble} of=${asked} />
    <div class="row">
      <h1>Task ${task.id}</h1>
      <${StateBadge} task=${task} />
      <a
        class="group"
        title=${task.group}
        href=${`/tables/${id}/tasks?group=${encodeURIComponent(task.group ?? "")}`}
        >${task.group}</a
      >
      <span class="gap"></span>
      <${Actions} table=${id} task=${task} done=${refresh} />
    </div>
    <${Times} task=${task} now=${now} />
    ${
      value.waits.length > 0 &&
      html`<section>
        <h2>Why it waits</h2>
        <ul class="panel reasons">
          ${value.waits.map((reason) => html`<li key=${reason}>${withMoments(reason)}</li>`)}
        </ul>
      </section>`
    }
    <${LongText} title="Input" text=${task.input} />
    <${LongText} title="Error" text=${task.error} failed=${true} />
    <${LongText} title="Output" text=${task.output} />
    <${LongText} title="Data" text=${task.data} />
    <div class="columns">
      <section>
        <h2>Settings</h2>
        <dl class="panel settings">
          ${settings(task).map(
            ([name, shown]) =>
              html`<div key=${name}>
                <dt>${name}</dt>
                <dd>${shown}</dd>
              </div>`,
          )}
        </dl>
      </section>
      <section>
        <h2>Chain</h2>
        <${Chain} id=${id} page=${value} />
      </section>
    </div>
  </main>`;
}

/** Times of the server's as one reads them. */
const withMoments = (text: string): string =>
  text.replace(/\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d/g, moment);

/** From the first ancestor down to the last descendant, each set in further than what it came from. */
function Chain({ id, page }: { id: string; page: Page }): VNode {
  const { task, ancestors, ancestorsComplete, descendants, descendantsComplete } = page;
  const first = ancestors.at(-1)?.parent ?? (ancestors.length === 0 ? task.parent : null);
  const alone = ancestors.length + descendants.length === 0;
  return html`<div class="panel chain">
    ${alone && task.parent === null && descendantsComplete && html`<p class="empty">It came from no other task, and none came from it.</p>`}
    ${!ancestorsComplete && html`<p class="note">Its first ancestors are left out.</p>`}
    ${ancestorsComplete && first !== null && !ancestors.some((each) => each.id === first) && first !== task.id && html`<p class="note">Task ${first}, from which it came, is not there any more.</p>`}
    ${
      !alone &&
      html`<ol>
        ${ancestors.toReversed().map((each) => relative(id, each, "parent", 0))}
        <li class="self">
          <${StateBadge} task=${task} /><b>${task.id}</b><span class="sql">this task</span>
        </li>
        ${descendants.map((each: Descendant) => relative(id, each, "child", each.depth))}
      </ol>`
    }
    ${!descendantsComplete && html`<p class="note">There may be more: not all rows behind it were looked through.</p>`}
  </div>`;
}

/** Steps further in that are shown; deeper ones stand below each other. */
const deepest = 6;

function relative(id: string, task: TaskSummary, kind: "parent" | "child", depth: number): VNode {
  return html`<li key=${task.id} class=${`${kind} depth-${Math.min(depth, deepest)}`}>
    <${StateBadge} task=${task} />
    <a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a>
    <span class="sql" title=${task.input}>${firstLine(task.input)}</span>
    <span class="when" title=${task.plan}>${moment(task.start ?? task.plan)}</span>
  </li>`;
}

/** How long from one to the other; nothing when one of them is open. */
const between = (from: string | null, to: string | null): string => {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? "" : pageDuration(ms);
};

function Times({ task, now }: { task: Task; now: number }): VNode {
  const { plan, start, stop, state, tookMs } = task;
  const take = typeof task.columns["take"] === "string" ? task.columns["take"] : null;
  const steps = [
    { name: "Plan", at: plan, gap: "" },
    { name: "Taken", at: take, gap: between(plan, take) },
    { name: "Start", at: start, gap: between(take ?? plan, start) },
    {
      name: "Stop",
      at: stop,
      gap:
        state === "WORK" && start !== null
          ? pageDuration(Math.max(0, now - Date.parse(start)))
          : tookMs === null
            ? ""
            : pageDuration(tookMs),
    },
  ];
  return html`<ol class="times panel" aria-label="Times">
    ${steps.map(
      ({ name, at, gap }) =>
        html`<li key=${name} class=${at === null ? "open" : ""}>
          <span class="gap-time">${gap}</span>
          <b>${name}</b>
          <time title=${at ?? ""}>${at === null ? "–" : moment(at)}</time>
          ${name === "Plan" && state === "PLAN" && html`<small>${distance(plan, now)}</small>`}
        </li>`,
    )}
  </ol>`;
}

function LongText({
  title,
  text,
  failed = false,
}: {
  title: string;
  text: Task["output"];
  failed?: boolean;
}): VNode | null {
  if (text === null) return null;
  const copy = (): void => void navigator.clipboard.writeText(text.text);
  const cut = new TextEncoder().encode(text.text).length < text.bytes;
  return html`<section>
    <div class="row">
      <h2>${title}</h2>
      <small
        >${bytes(text.bytes)}${cut ? `, the first ${bytes(text.text.length)} shown` : ""}</small
      >
      <span class="gap"></span>
      ${isSecureContext && html`<button class="quiet" onClick=${copy} aria-label=${`Copy ${title.toLowerCase()}`}>Copy</button>`}
    </div>
    <pre class=${failed ? "panel failed" : "panel"} tabindex="0" aria-label=${title}>
${text.text === "" ? html`<i>empty</i>` : text.text}</pre>
  </section>`;
}

/** Columns that are shown elsewhere on the page, or are pg-task's own affair. */
const elsewhere = new Set(["take", "hash", "owner", "ready"]);
/** What most tasks have in a column: it is not worth a line. */
const usual: Readonly<Record<string, readonly unknown[]>> = {
  timeout: ["00:00:00"],
  live: ["00:00:00"],
  keep: ["00:00:00"],
  count: [0],
  crash: [0],
  drift: [false],
  save: [false],
  header: [true],
  string: [true],
  delimiter: ["\t"],
  escape: [""],
  quote: [""],
  null: ["\\N"],
};

function words(value: unknown): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What is not as it is with most tasks, a user's own columns included. */
function settings({ max, repeat, pid, remote, columns }: Task): [string, string][] {
  const some: [string, string | null][] = [
    ["max", max !== null && max < 0 ? `${max} (pause of ${pageDuration(-max)})` : String(max ?? 0)],
    ["repeat", repeat],
    ...Object.entries(columns).map(([name, value]): [string, string | null] => {
      const shown = value !== null && !elsewhere.has(name) && !usual[name]?.includes(value);
      return [name, shown ? words(value) : null];
    }),
    ["pid", pid === null ? null : String(pid)],
    ["remote", remote],
  ];
  return some.flatMap(([name, text]): [string, string][] => (text === null ? [] : [[name, text]]));
}

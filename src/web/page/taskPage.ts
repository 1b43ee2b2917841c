import { html } from "htm/preact";
import type { VNode } from "preact";
import type { BriefTask, Task, TaskPage as Page } from "../schemas.js";
import { Actions } from "./actions.js";
import { bytes, distance, duration, firstLine, moment } from "./format.js";
import { useResource } from "./resource.js";
import { StateBadge } from "./stateBadge.js";

/** Everything about one task. */
export function TaskPage({
  id,
  task: taskId,
  now,
}: {
  id: string;
  task: string;
  now: number;
}): VNode {
  const { value, problem, refresh } = useResource<Page>(`/tables/${id}/tasks/${taskId}`, {
    table: id,
  });
  if (value === null || value.task.id !== taskId) {
    return html`<main class="task">
      ${problem === null ? "" : html`<p class="notice bad" role="alert">${problem}</p>`}
    </main>`;
  }
  const { task, parents, children, childrenComplete } = value;
  return html`<main class="task">
    ${problem !== null && html`<p class="notice bad" role="alert">${problem}</p>`}
    <div class="row">
      <h1>Task ${task.id}</h1>
      <${StateBadge} task=${task} />
      <span class="group">${task.group}</span>
      <span class="gap"></span>
      <${Actions} table=${id} task=${task} done=${refresh} />
    </div>
    <${Times} task=${task} now=${now} />
    <${LongText} title="Input" text=${task.input} />
    <${LongText} title="Error" text=${task.error} failed=${true} />
    <${LongText} title="Output" text=${task.output} />
    <${LongText} title="Data" text=${task.data} />
    <div class="columns">
      <section>
        <h2>Settings</h2>
        <dl class="panel settings">
          ${settings(task).map(
            ([name, words]) =>
              html`<div key=${name}>
                <dt>${name}</dt>
                <dd>${words}</dd>
              </div>`,
          )}
        </dl>
      </section>
      <section>
        <h2>Chain</h2>
        <div class="panel chain">
          ${parents.length === 0 && children.length === 0 && task.parent === null && html`<p class="empty">Neither parent nor children.</p>`}
          ${task.parent !== null && parents.length === 0 && html`<p class="note">Its parent ${task.parent} is not there any more.</p>`}
          <ol>
            ${parents.toReversed().map((each) => relative(id, each, "parent"))}
            ${parents.length + children.length > 0 && html`<li class="self"><${StateBadge} task=${task} /><b>${task.id}</b><span class="sql">this task</span></li>`}
            ${children.map((each) => relative(id, each, "child"))}
          </ol>
          ${!childrenComplete && html`<p class="note">Only the rows soon after this one were looked through for children.</p>`}
        </div>
      </section>
    </div>
  </main>`;
}

function relative(id: string, task: BriefTask, kind: "parent" | "child"): VNode {
  return html`<li key=${task.id} class=${kind}>
    <${StateBadge} task=${task} />
    <a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a>
    <span class="sql" title=${task.input}>${firstLine(task.input)}</span>
    <span class="when" title=${task.plan}>${moment(task.start ?? task.plan)}</span>
  </li>`;
}

/** How long from one to the other; nothing when one of them is open. */
const between = (from: string | null, to: string | null): string => {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? "" : duration(ms);
};

function Times({ task, now }: { task: Task; now: number }): VNode {
  const { plan, take, start, stop, state, runMs } = task;
  const steps = [
    { name: "Plan", at: plan, gap: "" },
    { name: "Taken", at: take, gap: between(plan, take) },
    { name: "Start", at: start, gap: between(take ?? plan, start) },
    {
      name: "Stop",
      at: stop,
      gap:
        runMs === null
          ? state === "WORK" && start !== null
            ? duration(Math.max(0, now - Date.parse(start)))
            : ""
          : duration(runMs),
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

/** What is not as it is with every task comes with its value, the rest is left out. */
function settings(task: Task): [string, string][] {
  const zero = "00:00:00";
  const times = ["timeout", "repeat", "live", "keep"] as const;
  const flags = ["drift", "save"] as const;
  return [
    ["max", task.max < 0 ? `${task.max} (pause of ${duration(-task.max)})` : String(task.max)],
    ["active", task.active],
    ...times.flatMap((name): [string, string][] =>
      task[name] === zero ? [] : [[name, task[name]]],
    ),
    ...flags.flatMap((name): [string, string][] => (task[name] ? [[name, "yes"]] : [])),
    ...(task.count === 0 ? [] : ([["count", String(task.count)]] satisfies [string, string][])),
    ...(task.crash === 0 ? [] : ([["crash", String(task.crash)]] satisfies [string, string][])),
    ["atomic", task.atomic ? "yes" : "no"],
    ["delete", task.delete ? "yes" : "no"],
    ...(task.pid === null ? [] : ([["pid", String(task.pid)]] satisfies [string, string][])),
    ...(task.remote === null ? [] : ([["remote", task.remote]] satisfies [string, string][])),
  ];
}

import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Descendant } from "../../tasks/queries/taskChain.js";
import type { TaskSummary } from "../../tasks/queries/taskSummary.js";
import type { FullTask, TaskDetail } from "../api/schemas.js";
import { Actions } from "./actions.js";
import { bytesText, relativeTimeText, timeText } from "./format.js";
import { useResource } from "./resource.js";
import { StateBadge } from "./stateBadge.js";
import { StaleNotice } from "./staleNotice.js";
import { firstLine } from "../../shared/firstLine.js";
import { formatDuration } from "../../shared/formatDuration.js";

/** Shows a task with its times, input, results, settings and chain (ancestors and descendants). */
export function TaskView({ id, task: taskId, now }: { id: string; task: string; now: number }): VNode {
  const resource = useResource<TaskDetail>(`/tables/${id}/tasks/${taskId}`, { table: id });
  const { value, problem, refresh } = resource;
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
    <${StaleNotice} of=${resource} />
    <div class="row">
      <h1>Task ${task.id}</h1>
      <${StateBadge} task=${task} />
      <a class="group" title=${task.group} href=${`/tables/${id}/tasks?group=${encodeURIComponent(task.group ?? "")}`}
        >${task.group}</a
      >
      <span class="gap"></span>
      <${Actions} table=${id} task=${task} done=${refresh} />
    </div>
    <${Times} task=${task} now=${now} />
    ${
      value.waits.length > 0 &&
      html`<section>
        <h2>Why it is waiting</h2>
        <ul class="panel reasons">
          ${value.waits.map((reason) => html`<li key=${reason}>${withLocalTimes(reason)}</li>`)}
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
        <${ChainView} id=${id} page=${value} />
      </section>
    </div>
  </main>`;
}

/** Replaces the server's ISO times in a string with local times. */
const withLocalTimes = (text: string): string => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d/g, timeText);

/** Shows the chain from the oldest ancestor to the last descendant. Each descendant is indented by its depth. */
function ChainView({ id, page }: { id: string; page: TaskDetail }): VNode {
  const { task, ancestors, ancestorsComplete, descendants, descendantsComplete } = page;
  const first = ancestors.at(-1)?.parent ?? (ancestors.length === 0 ? task.parent : null);
  const isAlone = ancestors.length + descendants.length === 0;
  return html`<div class="panel chain">
    ${isAlone && task.parent === null && descendantsComplete && html`<p class="empty">This task has no parent and no children.</p>`}
    ${!ancestorsComplete && html`<p class="note">Older ancestors are not shown.</p>`}
    ${ancestorsComplete && first !== null && !ancestors.some((each) => each.id === first) && first !== task.id && html`<p class="note">Its ancestor, task ${first}, no longer exists.</p>`}
    ${
      !isAlone &&
      html`<ol>
        ${ancestors.toReversed().map((each) => relative(id, each, "parent", 0))}
        <li class="self"><${StateBadge} task=${task} /><b>${task.id}</b><span class="sql">this task</span></li>
        ${descendants.map((each: Descendant) => relative(id, each, "child", each.depth))}
      </ol>`
    }
    ${!descendantsComplete && html`<p class="note">There may be more descendants: not all newer rows were searched.</p>`}
  </div>`;
}

/** Descendants below this depth are not indented any further. */
const maxIndent = 6;

function relative(id: string, task: TaskSummary, kind: "parent" | "child", depth: number): VNode {
  return html`<li key=${task.id} class=${`${kind} depth-${Math.min(depth, maxIndent)}`}>
    <${StateBadge} task=${task} />
    <a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a>
    <span class="sql" title=${task.input}>${firstLine(task.input.trim())}</span>
    <span class="when" title=${task.plan}>${timeText(task.start ?? task.plan)}</span>
  </li>`;
}

/** Formats the time from `from` to `to`. Returns an empty string if one of the two is missing. */
const elapsedText = (from: string | null, to: string | null): string => {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? "" : formatDuration(ms);
};

function Times({ task, now }: { task: FullTask; now: number }): VNode {
  const { plan, start, stop, state, tookMs } = task;
  const claimed = typeof task.columns["take"] === "string" ? task.columns["take"] : null;
  const steps = [
    { name: "Plan", at: plan, gap: "" },
    { name: "Claimed", at: claimed, gap: elapsedText(plan, claimed) },
    { name: "Start", at: start, gap: elapsedText(claimed ?? plan, start) },
    {
      name: "Stop",
      at: stop,
      gap:
        state === "WORK" && start !== null
          ? formatDuration(Math.max(0, now - Date.parse(start)))
          : tookMs === null
            ? ""
            : formatDuration(Math.max(0, tookMs)),
    },
  ];
  return html`<ol class="times panel" aria-label="Times">
    ${steps.map(
      ({ name, at, gap }) =>
        html`<li key=${name} class=${at === null ? "open" : ""}>
          <span class="gap-time">${gap}</span>
          <b>${name}</b>
          <time title=${at ?? ""}>${at === null ? "–" : timeText(at)}</time>
          ${name === "Plan" && state === "PLAN" && html`<small>${relativeTimeText(plan, now)}</small>`}
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
  text: FullTask["output"];
  failed?: boolean;
}): VNode | null {
  if (text === null) return null;
  const copy = (): void => void navigator.clipboard.writeText(text.text);
  const isCut = new TextEncoder().encode(text.text).length < text.bytes;
  return html`<section>
    <div class="row">
      <h2>${title}</h2>
      <small>${bytesText(text.bytes)}${isCut ? `, the first ${bytesText(text.text.length)} shown` : ""}</small>
      <span class="gap"></span>
      ${isSecureContext && html`<button class="quiet" onClick=${copy} aria-label=${`Copy ${title.toLowerCase()}`}>Copy</button>`}
    </div>
    <pre class=${failed ? "panel failed" : "panel"} tabindex="0" aria-label=${title}>
${text.text === "" ? html`<i>empty</i>` : text.text}</pre>
  </section>`;
}

/** Columns that are not listed, because they are internal or shown elsewhere on the page. */
const hiddenColumns = new Set(["take", "hash", "owner", "ready", "wait", "plain"]);
/** The common values of columns. A column that has one of its common values is not shown. */
const defaultValues: Readonly<Record<string, readonly unknown[]>> = {
  timeout: ["00:00:00"],
  live: ["00:00:00"],
  gap: ["00:00:00"],
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

function valueText(value: unknown): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns the settings that have uncommon values, including user-defined columns. */
function settings({ max, repeat, pid, remote, columns }: FullTask): [string, string][] {
  const rows: [string, string | null][] = [
    ["max", max !== null && max < 0 ? `${max} (pause of ${formatDuration(-max)})` : String(max ?? 0)],
    ["repeat", repeat],
    ...Object.entries(columns).map(([name, value]): [string, string | null] => {
      const shown = value !== null && !hiddenColumns.has(name) && !defaultValues[name]?.includes(value);
      return [name, shown ? valueText(value) : null];
    }),
    ["pid", pid === null ? null : String(pid)],
    ["remote", remote],
  ];
  return rows.flatMap(([name, text]): [string, string][] => (text === null ? [] : [[name, text]]));
}

import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { mayChange } from "./apiClient.js";
import type { Descendant } from "../../tasks/queries/taskChain.js";
import type { FullTask, TaskDetail } from "../api/taskSchemas.js";
import { Actions } from "./actions.js";
import { ComingTimes } from "./comingTimes.js";
import { Dependencies } from "./dependencyGraph.js";
import { focusMainSoon } from "./focus.js";
import { bytesText, timeText } from "./format.js";
import { Code } from "./code.js";
import { useResource } from "./resource.js";
import { navigate } from "./router.js";
import { argumentsText, Settings } from "./taskSettings.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import { attemptText } from "../../shared/attemptText.js";
import { failedAttempts, Times, waitsForRetry } from "./taskTimes.js";
import { isFinalState } from "../../shared/taskState.js";
import { firstLine } from "../../shared/firstLine.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { Why } from "./why.js";
import { Alert, GroupLink, StaleNotice, StateBadge, Time } from "./parts.js";

export function TaskView({ id, task: taskId, now }: { id: string; task: string; now: number }): VNode {
  const resource = useResource<TaskDetail>(`/tables/${id}/tasks/${taskId}`, { table: id, isFinal: hasEnded });
  const { value, problem, refresh } = resource;
  if (value === null || value.task.id !== taskId) {
    return html`<main id="main" class="task" aria-busy=${problem === null}>
      <h1>Task ${taskId}</h1>
      ${
        problem !== null &&
        html`<${Alert} text=${problem} />
          <p><a href=${`/tables/${id}/tasks`}>All tasks</a></p>`
      }
    </main>`;
  }
  const { task } = value;
  const attempt = attemptText(task);
  // A task that waits for its next try shows the results of the last one.
  const ofAttempt = waitsForRetry(task) ? ` of attempt ${failedAttempts(task)}` : "";
  return html`<main id="main" class="task">
    <${StaleNotice} of=${resource} />
    <div class="row">
      <h1>Task ${task.id}</h1>
      <${StateBadge} task=${task} />
      ${attempt !== null && html`<span class="tag">${attempt}</span>`}
      <${GroupLink} table=${id} group=${task.group} />
      <span class="gap"></span>
      ${mayChange.value && html`<a class="button" href=${`/tables/${id}/add?from=${task.id}`}>${copyLabel(task)}</a>`}
      <${Actions} table=${id} task=${task} done=${refresh} deleted=${() => leave(id)} />
    </div>
    <${Times} task=${task} now=${now} />
    <${Why} table=${id} page=${value} done=${refresh} />
    ${task.rule !== null && task.state === "PLAN" && html`<${NextTimes} table=${id} task=${task} />`}
    <${Dependencies} table=${id} id=${task.id} ended=${hasEnded(value)} />
    <${LongText} title="Input" text=${task.input} sql=${true} />
    <${LongText} title="Args" text=${argumentsText(task)} />
    <${LongText} title=${`Error${ofAttempt}`} text=${task.error} failed=${true} />
    <${EarlierErrors} task=${task} />
    <${LongText} title=${`Output${ofAttempt}`} text=${task.output} />
    <${LongText} title="Data" text=${task.data} />
    <div class="columns">
      <section>
        <h2>Settings</h2>
        <${Settings} table=${id} page=${value} />
      </section>
      <${ChainView} id=${id} page=${value} />
    </div>
  </main>`;
}

function NextTimes({ table, task: { rule, columns } }: { table: string; task: FullTask }): VNode {
  const zone = columns["zone"];
  return html`<section>
    <h2>Next times</h2>
    <div class="panel next-times">
      <${ComingTimes} table=${table} rule=${rule} zone=${typeof zone === "string" ? zone : ""} />
    </div>
  </section>`;
}

/** Only a user can change such a task, so its page asks nothing again. */
const hasEnded = ({ task }: TaskDetail): boolean => isFinalState(task.state) && !task.claimed;

/** A copy of a task that still runs or waits is one more. */
const copyLabel = ({ state }: FullTask): string =>
  isFinalState(state) ? "Run again with changes" : "Copy as a new task";

function leave(table: string): void {
  navigate(`/tables/${table}/tasks`);
  focusMainSoon();
}

/** Shows nothing if there is nothing. */
function ChainView({ id, page }: { id: string; page: TaskDetail }): VNode | null {
  const { task, ancestors, ancestorsComplete, descendants, descendantsComplete } = page;
  const first = ancestors.at(-1)?.parent ?? (ancestors.length === 0 ? task.parent : null);
  const isAlone = ancestors.length + descendants.length === 0;
  if (isAlone && task.parent === null && descendantsComplete) return null;
  return html`<section>
    <h2>Chain</h2>
    <div class="panel chain">
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
    </div>
  </section>`;
}

const maxIndent = 6;

function relative(id: string, task: TaskSummary, kind: "parent" | "child", depth: number): VNode {
  return html`<li key=${task.id} class=${kind} style=${{ paddingLeft: `${Math.min(depth, maxIndent) * 16}px` }}>
    <${StateBadge} task=${task} />
    <a href=${`/tables/${id}/tasks/${task.id}`}>${task.id}</a>
    <span class="sql" title=${printableText(task.input)}>${printableLine(firstLine(task.input.trim()))}</span>
    <span class="when"><${Time} at=${task.start ?? task.plan} text=${timeText(task.start ?? task.plan)} /></span>
  </li>`;
}

function LongText(props: { title: string; text: FullTask["output"]; failed?: boolean; sql?: boolean }): VNode | null {
  const { title, text, failed = false, sql = false } = props;
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
${text.text === "" ? html`<i>empty</i>` : html`<${Code} text=${text.text} sql=${sql} />`}</pre>
  </section>`;
}

/** Those before the one whose results the page shows. */
function EarlierErrors({ task }: { task: FullTask }): VNode | null {
  const errors = readTryErrors(task.columns["errors"]) ?? [];
  const earlier = waitsForRetry(task) ? errors.slice(0, -1) : errors;
  if (earlier.length === 0) return null;
  return html`<section>
    <h2>Errors of earlier attempts</h2>
    <ul class="panel errors">
      ${earlier.map(
        ({ stop, sqlstate, error }) =>
          html`<li key=${stop}>
            <details>
              <summary><${Time} at=${stop} /> <b>${sqlstate}</b> ${printableLine(firstLine(error))}</summary>
              <pre tabindex="0" aria-label=${`Error of the attempt that ended at ${stop}`}>${printableText(error)}</pre>
            </details>
          </li>`,
      )}
    </ul>
  </section>`;
}

import { html } from "htm/preact";
import type { VNode } from "preact";
import type { TaskDetail } from "../api/taskSchemas.js";
import { printableLine } from "../../shared/printable.js";
import { mayChange, post, postJson } from "./apiClient.js";
import { Code } from "./code.js";
import { announce, ask } from "./dialog.js";
import { BlockerView } from "./blocker.js";
import { fullTimeText } from "./format.js";
import { useActions } from "./parts.js";

type Reason = TaskDetail["reasons"][number];

type ActionName = NonNullable<Reason["action"]>["name"];

/** What the buttons say, and what came of them. */
const labels: Readonly<Record<ActionName, readonly [label: string, done: string]>> = {
  "run-now": ["Run it now", "is due now"],
  "run-without-waiting": ["Run without waiting", "no longer waits for others"],
  "retry-without-waiting": ["Retry without waiting", "runs again, without waiting for others"],
  "resume-schedule": ["Resume the schedule", "goes on with its schedule"],
  resume: ["Resume", ""],
};

/**
 * Shows what `pg-task why` says, with buttons that end the reason, a statement that does, or a link to the task that
 * blocks.
 */
export function Why({ table, page, done }: { table: string; page: TaskDetail; done: () => void }): VNode | null {
  const reasons = page.reasons.filter(saysMore);
  if (reasons.length === 0) return null;
  return html`<section>
    <h2>${page.task.state === "PLAN" ? "Why it is waiting" : "Why"}</h2>
    <ul class="panel reasons">
      ${reasons.map(
        (reason) =>
          html`<li key=${reason.code}>
            <span>${withLinks(table, page.task.id, reason)}</span>
            <${Remedy} table=${table} task=${page.task.id} reason=${reason} done=${done} />
          </li>`,
      )}
    </ul>
  </section>`;
}

/** State, times and error are shown anyway. */
const saysMore = ({ code, text }: Reason): boolean =>
  code !== "running" && !(code === "ended" && !/; |expired|it is GONE/.test(text));

function Remedy(props: { table: string; task: string; reason: Reason; done: () => void }): VNode | null {
  const { table, task, reason, done } = props;
  const { action, hint, statement, blockers, tasks, code } = reason;
  const { run, failure } = useActions(done);
  const press = async (): Promise<boolean> => {
    if (action === null || !(await confirmed(action.name, task))) return false;
    if (action.name === "resume") await postJson(`/tables/${table}/resume`, { group: action.group });
    else await post(`/tables/${table}/tasks/${task}/${action.name.replace("-schedule", "")}`);
    announce(action.name === "resume" ? resumedText(action.group) : `Task ${task} ${labels[action.name][1]}.`);
    done();
    return true;
  };
  const [first, ...others] = tasks;
  const isBlocked = first !== undefined && others.length === 0 && code !== "ended";
  return html`<span class="actions">
      ${action !== null && mayChange.value && html`<button type="button" onClick=${() => void run(press)}>${labelOf(action)}</button>`}
      ${isBlocked && html`<a class="button" href=${`/tables/${table}/tasks/${first}`}>Show the blocker</a>`} ${failure}
    </span>
    ${action === null && hint !== null && html`<small>${printableLine(hint)}</small>`}
    ${statement !== null && html`<${Statement} text=${statement} />`}
    ${blockers.map((blocker) => html`<${BlockerView} key=${blocker.pid} table=${table} task=${task} blocker=${blocker} done=${done} />`)}`;
}

/** Asks before it changes a task so that it cannot be changed back. */
async function confirmed(name: ActionName, task: string): Promise<boolean> {
  if (name !== "run-without-waiting" && name !== "retry-without-waiting") return true;
  const title = `Run task ${task} without waiting?`;
  const text = "It forgets the tasks for which it waits, and does not depend on how they end. This cannot be undone.";
  return (await ask({ title, text, confirm: labels[name][0] })) !== null;
}

const resumedText = (group: string | null): string =>
  group === null
    ? "Table resumed."
    : group === ""
      ? "The empty group resumed."
      : `Group ${printableLine(group)} resumed.`;

function Statement({ text }: { text: string }): VNode {
  const copy = (): void => {
    void navigator.clipboard.writeText(text).then(() => announce("Statement copied."));
  };
  return html`<div class="statement">
    <code><${Code} text=${text} sql=${true} /></code>
    ${isSecureContext && html`<button type="button" class="quiet" onClick=${copy}>Copy statement</button>`}
  </div>`;
}

function labelOf(action: NonNullable<Reason["action"]>): string {
  if (action.name !== "resume") return labels[action.name][0];
  return action.group === null ? "Resume table" : "Resume group";
}

/** The ids of the tasks become links. */
function withLinks(table: string, own: string, { text, tasks }: Reason): (VNode | string)[] {
  const known = new Set(tasks.filter((id) => id !== own));
  const shown = printableLine(text.replace(/\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d/g, fullTimeText));
  return shown
    .split(/(?<![\d:.+-])(\d+)(?![\d:.-])/)
    .map((part, place) =>
      place % 2 === 1 && known.has(part)
        ? html`<a key=${place} href=${`/tables/${table}/tasks/${part}`}>${part}</a>`
        : part,
    );
}

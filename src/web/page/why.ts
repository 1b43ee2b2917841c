import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import type { TaskDetail } from "../api/taskSchemas.js";
import { printableLine } from "../../shared/printable.js";
import { mayChange, post, postJson, problemText } from "./apiClient.js";
import { announce } from "./dialog.js";
import { fullTimeText } from "./format.js";

type Reason = TaskDetail["reasons"][number];

const labels = { "run-now": "Run it now", "resume-schedule": "Resume the schedule", resume: "Resume" } as const;

/** Shows what `pg-task why` says, with a button that ends the reason or a link to the task that blocks. */
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
  code !== "running" && !(code === "ended" && !text.includes("; ") && !text.includes("expired"));

function Remedy(props: { table: string; task: string; reason: Reason; done: () => void }): VNode | null {
  const { table, task, reason, done } = props;
  const { action, remedy, tasks, code } = reason;
  const [problem, setProblem] = useState<string | null>(null);
  const busy = useRef(false);
  const press = async (): Promise<void> => {
    if (busy.current || action === null) return;
    busy.current = true;
    try {
      if (action.name === "resume") await postJson(`/tables/${table}/resume`, { group: action.group });
      else await post(`/tables/${table}/tasks/${task}/${action.name === "run-now" ? "run-now" : "resume"}`);
      setProblem(null);
      announce(`${labels[action.name]}: done`);
    } catch (error) {
      setProblem(problemText(error));
    }
    busy.current = false;
    done();
  };
  const [blocker, ...others] = tasks;
  const isBlocked = blocker !== undefined && others.length === 0 && code !== "ended";
  return html`<span class="actions">
      ${action !== null && mayChange.value && html`<button type="button" onClick=${() => void press()}>${labelOf(action)}</button>`}
      ${isBlocked && html`<a class="button" href=${`/tables/${table}/tasks/${blocker}`}>Show the blocker</a>`}
      ${problem !== null && html`<span class="problem" role="alert">${problem}</span>`}
    </span>
    ${action === null && remedy !== null && html`<small>${printableLine(remedy)}</small>`}`;
}

function labelOf(action: NonNullable<Reason["action"]>): string {
  if (action.name !== "resume") return labels[action.name];
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

import { html } from "htm/preact";
import type { VNode } from "preact";
import type { FullTask } from "../api/taskSchemas.js";
import { fullTimeText, relativeTimeText } from "./format.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { Time, unknown } from "./parts.js";

interface Step {
  readonly name: string;
  readonly at: string | null;
  /** Shown instead of the time. */
  readonly text?: string;
  /** How long it took to get here from the step before. */
  readonly gap: string;
  readonly note?: string;
}

/** Shows when a task was planned, claimed, started and stopped, or when it is tried again. */
export function Times({ task, now }: { task: FullTask; now: number }): VNode {
  return html`<ol class="times panel" aria-label="Times">
    ${stepsOf(task, now).map(
      ({ name, at, text, gap, note }) =>
        html`<li key=${name} class=${at === null || Date.parse(at) > now ? "open" : ""}>
          <span class="gap-time">${gap}</span>
          <b>${name}</b>
          ${text !== undefined || at === null ? html`<time>${text ?? unknown}</time>` : html`<${Time} at=${at} />`}
          ${note !== undefined && html`<small>${note}</small>`}
        </li>`,
    )}
  </ol>`;
}

function stepsOf(task: FullTask, now: number): Step[] {
  const { plan, start, stop, state, tookMs } = task;
  const due = textColumn(task, "due");
  const ran = tookMs === null ? "" : formatDuration(Math.max(0, tookMs));
  const isTime = !Number.isNaN(Date.parse(plan));
  const planned: Step = {
    name: "Plan",
    at: plan,
    gap: "",
    ...(state === "PLAN" && isTime ? { note: relativeTimeText(plan, now) } : {}),
  };
  if (waitsForRetry(task)) {
    const step: Step = { ...planned, name: "Next try", gap: elapsedText(stop, plan) };
    return [
      { name: "Plan", at: due, gap: "" },
      { name: "Start", at: start, gap: elapsedText(due, start) },
      { name: "Stop", at: stop, gap: ran },
      step,
    ];
  }
  const claimed = textColumn(task, "take");
  return [
    waitsForOthers(task) ? heldStep(due, now) : planned,
    { name: "Claimed", at: claimed, gap: elapsedText(plan, claimed) },
    { name: "Start", at: start, gap: elapsedText(claimed ?? plan, start) },
    {
      name: "Stop",
      at: stop,
      gap: state === "WORK" && start !== null ? formatDuration(Math.max(0, now - Date.parse(start))) : ran,
    },
  ];
}

/** Returns the step of a task that waits for others and for the time in `due`. */
function heldStep(due: string | null, now: number): Step {
  const isLater = due !== null && Date.parse(due) > now;
  const note = isLater ? { note: `not before ${fullTimeText(due)}` } : {};
  return { name: "Plan", at: null, text: "after the others", gap: "", ...note };
}

const textColumn = ({ columns }: FullTask, name: string): string | null => {
  const value = columns[name];
  return typeof value === "string" ? value : null;
};

/** Whether the row shows a failed try, and the next one is planned. */
export const waitsForRetry = (task: FullTask): boolean =>
  task.state === "PLAN" && !task.claimed && task.stop !== null && failedAttempts(task) > 0;

/** Whether the task is planned for the time when the tasks for which it waits have ended. */
export const waitsForOthers = ({ held, plan }: Pick<FullTask, "held" | "plan">): boolean => held && plan === "infinity";

/** Returns how many tries have failed and led to another one. */
export const failedAttempts = (task: FullTask): number => task.attempt ?? 0;

/** Formats the time from `from` to `to`. Returns an empty string if one of the two is missing. */
function elapsedText(from: string | null, to: string | null): string {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? "" : formatDuration(ms);
}

import { html } from "htm/preact";
import type { VNode } from "preact";
import type { FullTask } from "../api/taskSchemas.js";
import { fullTimeText, relativeTimeText } from "./format.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { Time, unknown } from "./parts.js";

interface Step {
  readonly name: string;
  readonly at: string | null;
  readonly text?: string;
  /** Since the step before. */
  readonly gap: string;
  readonly note?: string;
}

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
  // The row of a task that never ran has the time of its end as both.
  if (state === "GONE" && claimed === null) return [planned, { name: "Gone", at: stop, gap: elapsedText(plan, stop) }];
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

export const waitsForOthers = ({ held, plan }: Pick<FullTask, "held" | "plan">): boolean => held && plan === "infinity";

export const failedAttempts = (task: FullTask): number => task.attempt ?? 0;

function elapsedText(from: string | null, to: string | null): string {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? "" : formatDuration(ms);
}

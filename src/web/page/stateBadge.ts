import { html } from "htm/preact";
import type { VNode } from "preact";
import type { TaskSummary } from "../api/schemas.js";

const meanings: Readonly<Record<string, string>> = {
  PLAN: "planned",
  TAKE: "claimed",
  WORK: "running",
  DONE: "ran without error",
  FAIL: "ran with an error",
  GONE: "not run: its time had passed",
  STOP: "stopped",
};

export function StateBadge({ task }: { task: Pick<TaskSummary, "state" | "ready"> }): VNode {
  const due = task.state === "PLAN" && task.ready === true;
  const meaning = due ? "due, waits for its turn" : (meanings[task.state] ?? task.state);
  return html`<span class=${`state s-${task.state}`} title=${meaning}>${task.state}</span>`;
}

import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";

const meanings: Readonly<Record<string, string>> = {
  PLAN: "planned",
  TAKE: "claimed",
  WORK: "running",
  DONE: "finished without error",
  FAIL: "finished with an error",
  GONE: "expired without running",
  STOP: "stopped",
};

export function StateBadge({ task }: { task: Pick<TaskSummary, "state" | "ready"> }): VNode {
  const isDue = task.state === "PLAN" && task.ready === true;
  const meaning = isDue ? "due, waiting to start" : (meanings[task.state] ?? task.state);
  return html`<span class=${`state s-${task.state}`} title=${meaning}>${task.state}</span>`;
}

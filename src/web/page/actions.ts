import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Schedule } from "../../tasks/queries/schedules.js";
import { mayChange, post, problemText } from "./apiClient.js";
import { announce, askToConfirm } from "./dialog.js";
import { useKeptFocus } from "./focus.js";

export type ActedTask = Pick<TaskSummary, "id" | "state" | "plan"> & { held?: boolean; claimed?: boolean };

interface Action {
  readonly name: "stop" | "retry" | "run-now" | "pause" | "resume" | "delete";
  readonly label: string;
  readonly done: string;
}

const stop: Action = { name: "stop", label: "Stop", done: "stopped" };
const retry: Action = { name: "retry", label: "Retry", done: "runs again" };
const runNow: Action = { name: "run-now", label: "Run now", done: "is due now" };
const remove: Action = { name: "delete", label: "Delete", done: "deleted" };

/** A task that waits for others cannot be started now. */
export function actionsFor({ state, plan, held, claimed }: ActedTask): Action[] {
  if (state === "TAKE" || state === "WORK") return [stop];
  // Its run is just ending.
  if (claimed === true) return [];
  if (state !== "PLAN") return [retry, remove];
  const later = held !== true && (plan === "infinity" || Date.parse(plan) > Date.now());
  return [...(later ? [runNow] : []), stop, remove];
}

/** Returns the actions that are possible on a schedule. A running one can only be stopped, on the page of its task. */
export function scheduleActions({
  state,
  plan,
  pausedItself,
  failedTries,
}: Pick<Schedule, "state" | "plan" | "pausedItself" | "failedTries">): Action[] {
  if (state !== "PLAN") return [];
  const later = pausedItself || (plan !== null && Date.parse(plan) > Date.now());
  return [
    ...(later ? [runNow] : []),
    pausedItself
      ? {
          name: "resume",
          label: "Resume",
          done: failedTries > 0 ? "resumed; its waiting retry was dropped" : "resumed",
        }
      : { name: "pause", label: "Pause", done: "paused" },
  ];
}

async function isConfirmed({ name }: Action, { id, state }: ActedTask): Promise<boolean> {
  if (name === "stop") {
    const isRunning = state === "TAKE" || state === "WORK";
    const text = isRunning ? "Its run is cancelled." : "It will not run. Retry plans it again.";
    return await askToConfirm({ title: `Stop task ${id}?`, text, confirm: "Stop it" });
  }
  if (name !== "delete") return true;
  const text = "Its row is deleted, with its input, output and error. This cannot be undone.";
  return await askToConfirm({ title: `Delete task ${id}?`, text, confirm: "Delete it" });
}

/** Actions that can lose something are confirmed in a dialog. */
export function Actions(props: {
  table: string;
  task: ActedTask;
  /** Default: those that the state of the task allows. */
  actions?: readonly Action[];
  done: () => void;
  deleted?: () => void;
}): VNode {
  const { table, task, done, deleted = done } = props;
  const [problem, setProblem] = useState<string | null>(null);
  const busy = useRef(false);
  const container = useRef<HTMLElement>(null);
  useKeptFocus(
    () => container.current,
    () => () => container.current?.querySelector("button") ?? container.current,
  );
  const run = async (action: Action): Promise<void> => {
    if (busy.current || !(await isConfirmed(action, task))) return;
    busy.current = true;
    try {
      await post(`/tables/${table}/tasks/${task.id}/${action.name}`);
      setProblem(null);
      announce(`Task ${task.id} ${action.done}`);
      if (action.name === "delete") deleted();
      else done();
    } catch (error) {
      setProblem(problemText(error));
      done();
    }
    busy.current = false;
  };
  if (!mayChange.value) return html`<span class="actions"></span>`;
  return html`<span
    class="actions"
    ref=${container}
    tabindex="-1"
    role="group"
    aria-label=${`Actions on task ${task.id}`}
  >
    ${(props.actions ?? actionsFor(task)).map(
      (action) =>
        html`<button
          type="button"
          key=${action.name}
          class=${`a-${action.name}`}
          title=${action.label}
          onClick=${() => void run(action)}
        >
          ${action.label}
        </button>`,
    )}
    ${problem !== null && html`<span class="problem" role="alert">${problem}</span>`}
  </span>`;
}

import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schedule } from "../../tasks/queries/schedules.js";
import { mayChange, post, RequestError } from "./apiClient.js";

interface Action {
  readonly name: "stop" | "retry" | "run-now" | "pause" | "resume";
  readonly label: string;
  /** Label of the button while it waits for confirmation. An action without this label needs no confirmation. */
  readonly confirmation?: string;
}

/** Returns the actions that are possible in the task's state. A task that waits for others cannot be started now. */
function actionsFor({ state, plan, held }: Pick<TaskSummary, "state" | "plan"> & { held?: boolean }): Action[] {
  const stop: Action = { name: "stop", label: "Stop", confirmation: "Stop it?" };
  if (state === "TAKE" || state === "WORK") return [stop];
  if (state !== "PLAN") return [{ name: "retry", label: "Retry" }];
  const later = (plan === "infinity" && held !== true) || Date.parse(plan) > Date.now();
  return [...(later ? [{ name: "run-now", label: "Run now" } as const] : []), stop];
}

/** Returns the actions that are possible on a schedule. A running one can only be stopped, on the page of its task. */
export function scheduleActions({
  state,
  plan,
  pausedItself,
}: Pick<Schedule, "state" | "plan" | "pausedItself">): Action[] {
  if (state !== "PLAN") return [];
  const later = pausedItself || (plan !== null && Date.parse(plan) > Date.now());
  const runNow: Action = { name: "run-now", label: "Run now" };
  return [
    ...(later ? [runNow] : []),
    pausedItself ? { name: "resume", label: "Resume" } : { name: "pause", label: "Pause" },
  ];
}

/**
 * Shows buttons for the possible actions, unless the token allows only reading. Actions that can lose work ask for
 * confirmation.
 */
export function Actions(props: {
  table: string;
  task: Pick<TaskSummary, "id" | "state" | "plan"> & { held?: boolean };
  /** The actions to show. By default, those that the task's state allows. */
  actions?: readonly Action[];
  done: () => void;
}): VNode {
  const { table, task, done } = props;
  const [unconfirmed, setUnconfirmed] = useState<Action | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => setUnconfirmed(null), [task.state]);
  const run = async ({ name }: Action): Promise<void> => {
    setUnconfirmed(null);
    setBusy(true);
    try {
      await post(`/tables/${table}/tasks/${task.id}/${name}`);
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof RequestError ? error.message : String(error));
    }
    setBusy(false);
    done();
  };
  const press = (action: Action): void => {
    if (action.confirmation === undefined || unconfirmed?.name === action.name) void run(action);
    else setUnconfirmed(action);
  };
  if (!mayChange.value) return html`<span class="actions"></span>`;
  return html`<span class="actions">
    ${(props.actions ?? actionsFor(task)).map((action) => {
      const isUnconfirmed = unconfirmed?.name === action.name;
      return html`<button
        key=${action.name}
        class=${isUnconfirmed ? "danger" : ""}
        disabled=${busy}
        onClick=${() => press(action)}
        onBlur=${() => setUnconfirmed(null)}
      >
        ${isUnconfirmed ? action.confirmation : action.label}
      </button>`;
    })}
    ${problem !== null && html`<span class="problem" role="alert">${problem}</span>`}
  </span>`;
}

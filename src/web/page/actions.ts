import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { TaskSummary } from "../api/schemas.js";
import { act, ApiRefusal } from "./apiClient.js";

interface Action {
  readonly name: "stop" | "retry" | "run-now";
  readonly words: string;
  /** Asked before it is done. */
  readonly question?: string;
}

/** What can be done to a task in its state. */
function actionsFor({ state, plan }: Pick<TaskSummary, "state" | "plan">): Action[] {
  const stop: Action = { name: "stop", words: "Stop", question: "Stop it" };
  if (state === "TAKE" || state === "WORK") return [stop];
  if (state !== "PLAN") return [{ name: "retry", words: "Retry" }];
  const later = plan === "infinity" || Date.parse(plan) > Date.now();
  return [...(later ? [{ name: "run-now", words: "Run now" } as const] : []), stop];
}

/** Buttons for what can be done to the task; what may lose work asks once more. */
export function Actions(props: {
  table: string;
  task: Pick<TaskSummary, "id" | "state" | "plan">;
  done: () => void;
}): VNode {
  const { table, task, done } = props;
  const [asked, setAsked] = useState<Action | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => setAsked(null), [task.state]);
  const run = async ({ name }: Action): Promise<void> => {
    setAsked(null);
    setBusy(true);
    try {
      await act(`/tables/${table}/tasks/${task.id}/${name}`);
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof ApiRefusal ? error.message : String(error));
    }
    setBusy(false);
    done();
  };
  const press = (action: Action): void => {
    if (action.question === undefined || asked?.name === action.name) void run(action);
    else setAsked(action);
  };
  return html`<span class="actions">
    ${actionsFor(task).map((action) => {
      const sure = asked?.name === action.name;
      return html`<button
        key=${action.name}
        class=${sure ? "danger" : ""}
        disabled=${busy}
        onClick=${() => press(action)}
        onBlur=${() => setAsked(null)}
      >
        ${sure ? `${action.question}?` : action.words}
      </button>`;
    })}
    ${problem !== null && html`<span class="problem" role="alert">${problem}</span>`}
  </span>`;
}

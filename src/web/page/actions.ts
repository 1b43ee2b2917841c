import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef } from "preact/hooks";
import { exactly } from "../../shared/count.js";
import type { StateChange } from "../../shared/taskState.js";
import type { ChangeEffects } from "../../tasks/queries/changeEffects.js";
import type { Schedule } from "../../tasks/queries/schedules.js";
import { mayChange, post } from "./apiClient.js";
import { announce, ask } from "./dialog.js";
import { confirmChange, readEffects } from "./effects.js";
import { useKeptFocus } from "./focus.js";
import { useActions } from "./parts.js";

export type ActedTask = Pick<TaskSummary, "id" | "state" | "plan" | "rule" | "repeat"> & {
  held?: boolean;
  claimed?: boolean;
};

interface Action {
  readonly name: StateChange | "pause" | "resume";
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

/** What the question before an action says. An empty text: it is only asked if there is more to say. */
function questionOf(name: StateChange, { state, rule, repeat }: ActedTask): { text: string; confirm: string } {
  const endsSchedule = state === "PLAN" && (rule !== null || repeat !== null) ? " Its schedule ends with it." : "";
  switch (name) {
    case "stop":
      return {
        text: ["TAKE", "WORK"].includes(state)
          ? "Its run is cancelled."
          : `It will not run.${endsSchedule} Retry plans it again.`,
        confirm: "Stop it",
      };
    case "retry":
      return {
        text: state === "DONE" ? "It has run without error, and runs a second time." : "",
        confirm: "Retry it",
      };
    case "run-now":
      return { text: "", confirm: "Plan it for now" };
    case "delete":
      return {
        text: `Its row is deleted, with its input, output and error.${endsSchedule} This cannot be undone.`,
        confirm: "Delete it",
      };
    default:
      return name satisfies never;
  }
}

/** Only a task that has not ended keeps others waiting. */
const hasEffects = (name: string, state: string): boolean => name !== "delete" || state === "PLAN";
const noEffects: ChangeEffects = { gone: exactly(0), causes: [], pauses: [], paused: exactly(0) };

async function confirmed(table: string, { name, label }: Action, task: ActedTask) {
  const { id, state } = task;
  const asItIs = { withoutWaiting: false, note: "" };
  if (name === "resume") return asItIs;
  if (name === "pause") {
    const text = "None of its runs starts until you resume it.";
    return (await ask({ title: `Pause schedule ${id}?`, text, confirm: "Pause it" })) === null ? null : asItIs;
  }
  const { text, confirm } = questionOf(name, task);
  return await confirmChange(table, hasEffects(name, state) ? await readEffects(table, name, [id]) : noEffects, {
    change: name,
    count: 1,
    title: `${label} task ${id}?`,
    texts: text === "" ? [] : [text],
    confirm,
    always: text !== "",
  });
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
  const { run, failure } = useActions(done);
  const container = useRef<HTMLElement>(null);
  useKeptFocus(
    () => container.current,
    () => () => container.current?.querySelector("button") ?? container.current,
  );
  const press = (action: Action) => async (): Promise<boolean> => {
    const wanted = await confirmed(table, action, task);
    if (wanted === null) return false;
    const { withoutWaiting, note } = wanted;
    await post(`/tables/${table}/tasks/${task.id}/${withoutWaiting ? "retry-without-waiting" : action.name}`);
    announce(`Task ${task.id} ${action.done}.${note}`);
    if (action.name === "delete") deleted();
    else done();
    return true;
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
          onClick=${() => void run(press(action))}
        >
          ${action.label}
        </button>`,
    )}
    ${failure}
  </span>`;
}

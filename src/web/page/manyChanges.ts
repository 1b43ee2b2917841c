import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { StateChange } from "../../shared/taskState.js";
import { numberText } from "./format.js";

export interface ManyChange {
  readonly name: StateChange;
  readonly label: string;
  readonly done: string;
  readonly verb: string;
  /** What is true of tasks in the states in which they can be changed. */
  readonly which: string;
}

export const changes: readonly ManyChange[] = [
  { name: "retry", label: "Retry", done: "planned again", verb: "will run again", which: "have ended" },
  { name: "run-now", label: "Run now", done: "planned for now", verb: "will be due now", which: "have not begun" },
  {
    name: "stop",
    label: "Stop",
    done: "stopped",
    verb: "will be stopped. Runs are cancelled",
    which: "have not ended",
  },
  {
    name: "delete",
    label: "Delete",
    done: "deleted",
    verb: "will be deleted. This cannot be undone",
    which: "do not run",
  },
];

export const countOf = (count: number): string => (count === 1 ? "1 task" : `${numberText(count)} tasks`);

/** Tasks that were not changed. */
interface Others {
  readonly text: string;
  readonly tasks: number;
  /** Of the first of them. */
  readonly ids: readonly string[];
}

/** Gets the focus, because the button that was pressed may be gone. */
export function OutcomeNotice(props: {
  text: string;
  others: readonly Others[];
  isComplete: boolean;
  close: () => void;
}): VNode {
  const { text, others, isComplete, close } = props;
  const notice = useRef<HTMLDivElement>(null);
  useEffect(() => notice.current?.focus(), [text]);
  return html`<div
    class=${isComplete ? "notice outcome" : "notice bad outcome"}
    ref=${notice}
    tabindex="-1"
    role="group"
    aria-label="What came of it"
  >
    <div>
      ${text}
      ${
        others.length > 0 &&
        html`<ul>
          ${others.map((each) => html`<li key=${each.text}>Not ${idsText(each)}: ${each.text}</li>`)}
        </ul>`
      }
    </div>
    <button type="button" class="quiet" onClick=${close}>Close</button>
  </div>`;
}

function idsText({ ids, tasks }: Others): string {
  const shown = ids.slice(0, 8);
  const more = tasks - shown.length;
  return more > 0 ? `${shown.join(", ")} and ${numberText(more)} more` : shown.join(", ");
}

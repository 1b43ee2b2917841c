import { html } from "htm/preact";
import type { ComponentChildren, VNode } from "preact";
import type { TaskDetail } from "../api/taskSchemas.js";
import { firstLine } from "../../shared/firstLine.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { mayChange, postJson } from "./apiClient.js";
import { Code } from "./code.js";
import { announce, ask } from "./dialog.js";
import { Facts, Time, unknown, useActions } from "./parts.js";

type Blocker = TaskDetail["reasons"][number]["blockers"][number];

interface Ending {
  readonly how: "cancel" | "terminate";
  readonly label: string;
  readonly confirm: string;
  readonly effect: string;
  readonly done: string;
}

const cancel: Ending = {
  how: "cancel",
  label: "Cancel its statement",
  confirm: "Cancel the statement",
  effect: "Its statement fails, and its transaction is rolled back at the latest when its program does so.",
  done: "Statement cancelled",
};
const terminate: Ending = {
  how: "terminate",
  label: "End its connection",
  confirm: "End the connection",
  effect: "Its transaction is rolled back, and its program loses the connection.",
  done: "Connection ended",
};

/** A session that keeps the task waiting, and the buttons that end it. */
export function BlockerView(props: { table: string; task: string; blocker: Blocker; done: () => void }): VNode {
  const { table, task, blocker, done } = props;
  const { pid, user, name, state, since, started, query, endable } = blocker;
  const { run, failure } = useActions(done);
  const press = (ending: Ending) => async (): Promise<boolean> => {
    if (!(await isConfirmed(blocker, ending))) return false;
    await postJson(`/tables/${table}/tasks/${task}/end-blocker`, { pid, started, how: ending.how });
    announce(`${ending.done}: server process ${pid}.`);
    done();
    return true;
  };
  // A statement that has ended cannot be cancelled.
  const endings =
    endable && started !== null && mayChange.value ? [...(state === "active" ? [cancel] : []), terminate] : [];
  const rows: [string, ComponentChildren][] = [
    ["Process", String(pid)],
    ["Application", shown(name)],
    ["User", shown(user)],
    ["State", state === null ? unknown : since === null ? state : html`${state} since <${Time} at=${since} />`],
    ["Statement", query === null ? unknown : html`<code><${Code} text=${printableText(query)} sql=${true} /></code>`],
  ];
  return html`<div class="blocker">
    <details>
      <summary>Show the blocker</summary>
      <${Facts} class="settings" rows=${rows} />
    </details>
    <span class="actions">
      ${endings.map((ending) => html`<button type="button" key=${ending.how} onClick=${() => void run(press(ending))}>${ending.label}</button>`)}
      ${failure}
    </span>
  </div>`;
}

const shown = (text: string | null): string => (text === null || text === "" ? unknown : printableLine(text));

const maxShown = 300;

async function isConfirmed({ pid, user, name, query }: Blocker, { label, confirm, effect }: Ending): Promise<boolean> {
  const statement = query === null || query === "" ? null : printableLine(firstLine(query.trim()).slice(0, maxShown));
  const answer = await ask({
    title: `${label}?`,
    text: [
      `Server process ${pid}, application ${shown(name)}, user ${shown(user)}.`,
      ...(statement === null ? [] : [`Its last statement: ${statement}`]),
      effect,
    ],
    confirm,
  });
  return answer !== null;
}

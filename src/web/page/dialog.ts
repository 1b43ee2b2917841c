import { signal } from "@preact/signals";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Question {
  readonly title: string;
  /** Paragraphs. */
  readonly text: string | readonly string[];
  readonly confirm: string;
  /** The label of a button that confirms in another way. */
  readonly other?: string | undefined;
  /** The label of a text that can be entered. */
  readonly field?: string | undefined;
}

/** Which button was pressed, and what was entered. Null if the question was not confirmed. */
type Answer = { readonly choice: "confirm" | "other"; readonly entered: string } | null;

interface Asked extends Question {
  readonly answer: (answer: Answer) => void;
}

const question = signal<Asked | null>(null);
const announcement = signal("");

export async function ask(asked: Question): Promise<Answer> {
  question.peek()?.answer(null);
  return await new Promise((answer) => {
    question.value = { ...asked, answer };
  });
}

/** Says what has happened, until the next click or key. */
export function announce(text: string): void {
  announcement.value = text;
}

const clearAnnouncement = (): void => announce("");
for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, clearAnnouncement, true);

/**
 * Shows the question that is asked, and holds the announcements. It is a part of the whole page, because a list that is
 * updated meanwhile may lose the row of which the user is asked.
 */
export function Dialogs(): VNode {
  return html`${question.value !== null && html`<${ConfirmDialog} question=${question.value} />`}
    <p class=${announcement.value === "" ? "hidden" : "notice toast"} role="status">${announcement.value}</p>`;
}

function ConfirmDialog({ question: { title, text, confirm, other, field, answer } }: { question: Asked }): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const closed = (): void => {
    question.value = null;
    const choice = dialog.current?.returnValue;
    const isConfirmed = choice === "confirm" || choice === "other";
    answer(isConfirmed ? { choice, entered: input.current?.value.trim() ?? "" } : null);
  };
  // The second click of a double click confirms nothing, wherever the dialog appears.
  const press = (choice: "confirm" | "other") => (event: MouseEvent) => {
    if (event.detail <= 1) dialog.current?.close(choice);
  };
  return html`<dialog
    class="panel"
    ref=${dialog}
    aria-labelledby="dialog-title"
    aria-describedby="dialog-text"
    onClose=${closed}
  >
    <h2 id="dialog-title">${title}</h2>
    <div id="dialog-text">${[text].flat().map((each) => html`<p key=${each}>${each}</p>`)}</div>
    ${
      field !== undefined &&
      html`<label class="dialog-field"
        >${field} <input type="text" ref=${input} maxlength="1000" autocomplete="off"
      /></label>`
    }
    <div class="answers">
      <button type="button" autofocus onClick=${() => dialog.current?.close("")}>Cancel</button>
      ${other !== undefined && html`<button type="button" onClick=${press("other")}>${other}</button>`}
      <button type="button" class="danger" onClick=${press("confirm")}>${confirm}</button>
    </div>
  </dialog>`;
}

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Question {
  readonly title: string;
  readonly text: string;
  readonly confirm: string;
  readonly answer: (confirmed: boolean) => void;
}

const question = signal<Question | null>(null);
const announcement = signal("");

export async function askToConfirm(asked: Omit<Question, "answer">): Promise<boolean> {
  question.peek()?.answer(false);
  return await new Promise((answer) => {
    question.value = { ...asked, answer };
  });
}

/** Tells users of screen readers what has happened. */
export function announce(text: string): void {
  announcement.value = text;
}

/**
 * Shows the question that is asked, and holds the announcements. It is a part of the whole page, because a list that is
 * updated meanwhile may lose the row of which the user is asked.
 */
export function Dialogs(): VNode {
  return html`${question.value !== null && html`<${ConfirmDialog} question=${question.value} />`}
    <p class="hidden" role="status">${announcement.value}</p>`;
}

function ConfirmDialog({ question: { title, text, confirm, answer } }: { question: Question }): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const closed = (): void => {
    question.value = null;
    answer(dialog.current?.returnValue === "confirm");
  };
  // The second click of a double click confirms nothing, wherever the dialog appears.
  const press = (event: MouseEvent): void => {
    if (event.detail <= 1) dialog.current?.close("confirm");
  };
  return html`<dialog
    class="panel"
    ref=${dialog}
    aria-labelledby="dialog-title"
    aria-describedby="dialog-text"
    onClose=${closed}
  >
    <h2 id="dialog-title">${title}</h2>
    <p id="dialog-text">${text}</p>
    <div class="answers">
      <button type="button" autofocus onClick=${() => dialog.current?.close("")}>Cancel</button>
      <button type="button" class="danger" onClick=${press}>${confirm}</button>
    </div>
  </dialog>`;
}

import { useState } from "preact/hooks";
import type { Prefill } from "./taskFields.js";

export interface Start {
  readonly kind: "now" | "delay" | "at";
  /** The interval, or the value of a `datetime-local` input. */
  readonly when: string;
}

interface Content extends Prefill {
  readonly start: Start;
}

interface Draft {
  readonly content: Content;
  /** Whether there is something to discard. */
  readonly isKept: boolean;
  /** Whether the content was entered before the form was opened. */
  readonly isRestored: boolean;
  readonly change: (changes: Partial<Content>) => void;
  readonly discard: () => void;
}

/**
 * The content of a form, which is kept until it is discarded, even if the page is left or loaded anew. It is kept only
 * for this tab, because it can contain passwords.
 */
export function useDraft(name: string, initial: () => Content): Draft {
  const key = `pg-task draft ${name}`;
  const [isRestored, setIsRestored] = useState(() => sessionStorage.getItem(key) !== null);
  const [content, setContent] = useState((): Content => {
    const stored = sessionStorage.getItem(key);
    return stored === null ? initial() : JSON.parse(stored);
  });
  const change = (changes: Partial<Content>): void => {
    const next = { ...content, ...changes };
    sessionStorage.setItem(key, JSON.stringify(next));
    setContent(next);
  };
  const discard = (): void => {
    sessionStorage.removeItem(key);
    setIsRestored(false);
    setContent(initial());
  };
  return { content, isKept: sessionStorage.getItem(key) !== null, isRestored, change, discard };
}

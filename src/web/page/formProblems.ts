import { html } from "htm/preact";
import type { RefObject, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ValueError } from "./apiClient.js";
import type { Field } from "./taskFields.js";

export interface Problem {
  readonly text: string;
  /** Null if it is not known. */
  readonly field: string | null;
}

interface FormProblems {
  /** Those of fields that have not been edited since. */
  readonly list: readonly Problem[];
  readonly show: (problems: readonly Problem[]) => void;
  readonly noteEdit: (field: string) => void;
}

/** The focus goes to the first field that has a problem. */
export function useFormProblems(form: RefObject<HTMLFormElement | null>, unfold: () => void): FormProblems {
  const [problems, setProblems] = useState<readonly Problem[]>([]);
  const [edited, setEdited] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => {
    if (problems.length === 0) return;
    const [at] = [...(form.current?.elements ?? [])].filter(
      (element) => element instanceof HTMLElement && element.getAttribute("aria-invalid") === "true",
    );
    if (!(at instanceof HTMLElement)) return form.current?.querySelector<HTMLElement>(".notice")?.focus();
    // A folded field cannot have the focus.
    if (at.closest("details") !== null) unfold();
    requestAnimationFrame(() => at.focus());
  }, [problems]);
  return {
    list: problems.filter(({ field }) => field === null || !edited.has(field)),
    show: (next) => {
      setProblems(next);
      setEdited(new Set());
    },
    noteEdit: (field) => setEdited(new Set([...edited, field])),
  };
}

export function Problems({ problems }: { problems: readonly Problem[] }): VNode | null {
  if (problems.length === 0) return null;
  return html`<div class="notice bad" role="alert" tabindex="-1">
    ${problems.map(({ field, text }) => html`<p key=${`${field} ${text}`}>${field !== null && html`<b>${field}:</b> `}${text}</p>`)}
  </div>`;
}

/** The name is null if the form has no field for it. */
export function problemOf(fields: readonly Field[], { pointer, detail }: ValueError): Problem {
  const name = pointer?.replace(/^#\/(?:columns\/)?/, "").replace(/^delay$/, "plan") ?? null;
  return { text: detail, field: name === "plan" || fields.some((field) => field.name === name) ? name : null };
}

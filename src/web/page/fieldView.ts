import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Field } from "./taskFields.js";

export function FieldView(props: {
  field: Field;
  /** The value of the column if the field is empty; null if there is none. */
  default: string | null;
  text: string;
  /** The task from which the server copies the value; null if it is not copied. */
  copiedFrom: string | null;
  problem: string | null;
  change: (text: string) => void;
}): VNode {
  const { field, text, copiedFrom, problem, change } = props;
  const { name, hint } = field;
  const id = `field-${name}`;
  const described = {
    id,
    name,
    "aria-describedby": `${id}-hint${problem === null ? "" : ` ${id}-problem`}`,
    "aria-invalid": problem !== null,
  };
  return html`<div class=${`field ${field.kind}`}>
    <label for=${id}>${name}</label>
    ${
      copiedFrom === null
        ? control(field, { described, text, change, placeholder: placeholder(props.default) })
        : html`<span class="copied">
            <input ...${described} value=${`as in task ${copiedFrom}`} readonly />
            <button type="button" aria-label=${`Change ${name}`} onClick=${() => change("")}>Change</button>
          </span>`
    }
    <small id=${`${id}-hint`}>${hint}</small>
    ${problem !== null && html`<small id=${`${id}-problem`} class="problem">${problem}</small>`}
  </div>`;
}

function placeholder(value: string | null): string {
  if (value === null || value === "") return "";
  return value === "\t" ? "default: a tab" : `default: ${value}`;
}

const maxRows = 16;

function control(
  { name, kind, own }: Field,
  options: { described: object; text: string; placeholder: string; change: (text: string) => void },
): VNode {
  const { described, text, change } = options;
  const edited = ({ target }: Event): void => {
    const isEditable =
      target instanceof HTMLInputElement ||
      target instanceof HTMLTextAreaElement ||
      target instanceof HTMLSelectElement;
    if (isEditable) change(target.value);
  };
  if (kind === "flag" || kind === "upon") {
    const choices = kind === "flag" ? { true: "yes", false: "no" } : { done: "done", fail: "fail", end: "end" };
    const fallback = options.placeholder.replace(/: true$/, ": yes").replace(/: false$/, ": no");
    return html`<select ...${described} value=${text} onChange=${edited}>
      <option value="">${fallback === "" ? "default" : fallback}</option>
      ${Object.entries(choices).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
    </select>`;
  }
  if (kind === "long" || kind === "json") {
    const least = name === "input" && own !== true ? 6 : 2;
    const rows = Math.max(least, Math.min(maxRows, text.split("\n").length));
    return html`<textarea
      ...${described}
      rows=${rows}
      spellcheck=${false}
      placeholder=${options.placeholder}
      value=${text}
      onInput=${edited}
    ></textarea>`;
  }
  return html`<input
    ...${described}
    inputmode=${kind === "whole" ? "numeric" : "text"}
    autocomplete="off"
    spellcheck=${false}
    placeholder=${options.placeholder}
    value=${text}
    onInput=${edited}
  />`;
}

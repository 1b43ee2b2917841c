import { html } from "htm/preact";
import type { VNode } from "preact";
import { columnsWith, taskColumns, valueKind, type ColumnsWith, type TaskColumn } from "../../shared/taskColumns.js";
import type { ColumnsInfo } from "../api/schemas.js";
import type { FullTask } from "../api/taskSchemas.js";

type FieldKind = "text" | "long" | "flag" | "whole" | "ids" | "list" | "json" | "upon";

export interface Field {
  readonly name: string;
  readonly kind: FieldKind;
  readonly hint: string;
  readonly own?: boolean;
}

type ProducerColumn = ColumnsWith<{ readonly by: "producer" }>;

const kinds: Readonly<Partial<Record<ReturnType<typeof valueKind>, FieldKind>>> = {
  number: "whole",
  flag: "flag",
  ids: "ids",
  list: "list",
  json: "json",
};
const exceptions: Readonly<Partial<Record<ProducerColumn, FieldKind>>> = { input: "long", data: "long", upon: "upon" };

/** Where the meaning of the column is too short. */
const hints: Readonly<Partial<Record<ProducerColumn, string>>> = {
  rule: "when it runs: as in cron (30 7 * * 1-5: weekdays at 07:30), an RRULE of RFC 5545 (FREQ=WEEKLY;BYDAY=MO), or a query that returns the next time",
};
/** What an empty field means if the column has no default. */
const withoutDefault: Readonly<Partial<Record<ProducerColumn, string>>> = {
  catchup: "false",
  overlap: "false",
  upon: "done",
};

function fieldOf(name: ProducerColumn): Field {
  const column: TaskColumn = taskColumns[name];
  const kind = valueKind(column);
  const hint = hints[name] ?? (kind === "interval" ? `interval: ${column.meaning}` : column.meaning);
  return { name, kind: exceptions[name] ?? kinds[kind] ?? "text", hint };
}

const main: readonly ProducerColumn[] = ["input", "args", "group", "key", "retry", "after"];
const output: readonly ProducerColumn[] = ["header", "string", "delimiter", "escape", "quote", "null"];
export const scheduleFields = ["rule", "zone", "jitter", "repeat", "catchup", "overlap", "drift"] as const;
const subjects: readonly (readonly [title: string, names: readonly ProducerColumn[]])[] = [
  ["Schedule", scheduleFields],
  ["Limits and errors", ["timeout", "within", "max", "gap", "active", "backoff", "sqlstate", "upon"]],
  ["Output and row", [...output, "delete", "keep", "data", "parent"]],
  ["Session", ["remote", "atomic", "save", "count", "live"]],
];

/** The form has a part of its own for `plan`. */
const others = columnsWith({ by: "producer" }).filter(
  (name) => name !== "plan" && ![...main, ...subjects.flatMap(([, names]) => names)].includes(name),
);

export const mainFields: readonly Field[] = main.map(fieldOf);

export const moreFields: readonly { readonly title: string; readonly fields: readonly Field[] }[] = [
  ...subjects,
  ["Other options", others] as const,
].map(([title, names]) => ({ title, fields: names.map(fieldOf) }));

/** An Error says what is wrong with the text. */
export function valueOfField({ name, kind, own }: Field, text: string): unknown {
  switch (kind) {
    case "flag":
      return text === "true";
    case "whole":
      return /^\s*[+-]?\d{1,9}\s*$/.test(text) ? Number(text) : new Error("Expected a whole number.");
    case "ids": {
      const ids = listOf(text);
      return ids.every((id) => /^-?\d{1,19}$/.test(id)) ? ids : new Error("Expected task ids, separated by commas.");
    }
    case "list":
      return listOf(text);
    case "json":
      return jsonOf(text);
    default:
      if (name === "remote" && own !== true && /\*\*\*/.test(text))
        return new Error("Enter the password instead of ***.");
      return name === "parent" && own !== true ? text.trim() : text;
  }
}

const listOf = (text: string): string[] => text.split(/[\s,]+/).filter((each) => each !== "");

function jsonOf(text: string): unknown {
  // JavaScript would silently round longer numbers.
  if (/\d[\d.]{15}/.test(text.replace(/"(?:[^"\\]|\\.)*"/g, '""'))) {
    return new Error("Numbers of more than 15 digits would be rounded: write them as strings.");
  }
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" ? value : new Error("Expected an array or an object.");
  } catch (error) {
    return new Error(`This is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

export interface Prefill {
  /** Missing fields take the default of their column. */
  readonly texts: Readonly<Record<string, string>>;
  /** What the server copies, because the page cannot show it. */
  readonly copied: readonly string[];
}

type Column = ColumnsInfo["columns"][number];

const notPrefilled = new Set(["plan", "parent"]);

/** Values that equal the default are left out. */
export function prefillFrom(
  task: FullTask,
  fields: readonly Field[],
  columns: readonly Column[],
  withSchedule: boolean,
): Prefill {
  const texts: Record<string, string> = {};
  const copied: string[] = [];
  // A second row with the schedule would start a second series of runs.
  const left = new Set<string>(withSchedule ? notPrefilled : [...notPrefilled, ...scheduleFields]);
  for (const field of fields) {
    const column = columns.find(({ name, own }) => name === field.name && own === (field.own === true));
    if (column === undefined || (left.has(field.name) && !column.own)) continue;
    const text = textOf(task, field, column);
    if (text === undefined) copied.push(field.name);
    else if (text !== (column.default ?? "")) texts[field.name] = text;
  }
  return { texts, copied };
}

/** Undefined if the server has to copy the value. */
function textOf(task: FullTask, field: Field, column: Column): string | undefined {
  const { name, own } = field;
  if (own !== true && (name === "input" || name === "data")) return longText(task[name], column);
  const value = own === true ? task.columns[name] : columnsOf(task)[name];
  if (value === null || value === undefined) return column.default === null ? "" : undefined;
  const text = shortText(value, field, column);
  // An empty field means the default. Passwords are masked.
  const isLost = (text === "" && column.default !== "") || (name === "remote" && text?.includes("***") === true);
  return isLost ? undefined : text;
}

function shortText(value: unknown, { kind }: Field, { type }: Column): string | undefined {
  if (kind === "ids" || kind === "list") return Array.isArray(value) ? value.join(", ") : undefined;
  // A string is JSON with numbers that JavaScript would round.
  if (kind === "json") return typeof value === "string" ? undefined : JSON.stringify(value, null, 2);
  if (typeof value === "string") return value;
  if (typeof value !== "object") return JSON.stringify(value);
  return /^jsonb?$/.test(type) ? JSON.stringify(value) : undefined;
}

function longText(text: FullTask["data"], column: Column): string | undefined {
  if (text === null) return column.default === null ? "" : undefined;
  const isCut = new TextEncoder().encode(text.text).length < text.bytes;
  return isCut || (text.text === "" && column.default !== "") ? undefined : text.text;
}

/** The page has null for a task that does not repeat. */
const columnsOf = ({ columns, ...task }: FullTask): Readonly<Record<string, unknown>> => ({
  ...columns,
  ...task,
  repeat: task.repeat ?? "00:00:00",
});

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
        ? control(field, { described, text, change, placeholder: placeholder(field, props.default) })
        : html`<span class="copied">
            <input ...${described} value=${`as in task ${copiedFrom}`} readonly />
            <button type="button" aria-label=${`Change ${name}`} onClick=${() => change("")}>Change</button>
          </span>`
    }
    <small id=${`${id}-hint`}>${hint}</small>
    ${problem !== null && html`<small id=${`${id}-problem`} class="problem">${problem}</small>`}
  </div>`;
}

function placeholder({ name, own }: Field, given: string | null): string {
  const meant: Readonly<Record<string, string | undefined>> = own === true ? {} : withoutDefault;
  const value = given ?? meant[name] ?? null;
  if (name === "rule" && own !== true && value === null) return "30 7 * * 1-5";
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
  const typed = { ...described, spellcheck: false, placeholder: options.placeholder, value: text, onInput: edited };
  if (kind === "long" || kind === "json") {
    const least = name === "input" && own !== true ? 6 : 2;
    const rows = Math.max(least, Math.min(maxRows, text.split("\n").length));
    return html`<textarea ...${typed} rows=${rows}></textarea>`;
  }
  return html`<input ...${typed} inputmode=${kind === "whole" ? "numeric" : "text"} autocomplete="off" />`;
}

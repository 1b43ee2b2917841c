import { columnsWith, taskColumns, valueKind, type ColumnsWith, type TaskColumn } from "../../shared/taskColumns.js";

/** How a field of the form is edited, and how its text becomes a value of the request. */
type FieldKind = "text" | "long" | "flag" | "whole" | "ids" | "list" | "json" | "upon";

/** An option of a task in the form. */
export interface Field {
  readonly name: string;
  readonly kind: FieldKind;
  /** What it means. */
  readonly hint: string;
  /** Whether it is a user-defined column. */
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

function field(name: ProducerColumn): Field {
  const column: TaskColumn = taskColumns[name];
  const kind = valueKind(column);
  const hint = kind === "interval" ? `interval: ${column.meaning}` : column.meaning;
  return { name, kind: exceptions[name] ?? kinds[kind] ?? "text", hint };
}

const main: readonly ProducerColumn[] = ["input", "args", "group", "key", "retry", "after"];
const output: readonly ProducerColumn[] = ["header", "string", "delimiter", "escape", "quote", "null"];
export const scheduleFields = ["rule", "zone", "repeat", "catchup", "overlap", "drift"] as const;
const subjects: readonly (readonly [title: string, names: readonly ProducerColumn[]])[] = [
  ["Schedule", scheduleFields],
  ["Limits and errors", ["timeout", "max", "gap", "active", "backoff", "sqlstate", "upon"]],
  ["Output and row", [...output, "delete", "keep", "data", "parent"]],
  ["Session", ["remote", "atomic", "save", "count", "live"]],
];

/** Columns of no subject. The form has a part of its own for `plan`. */
const others = columnsWith({ by: "producer" }).filter(
  (name) => name !== "plan" && ![...main, ...subjects.flatMap(([, names]) => names)].includes(name),
);

/** Options that are shown at once. */
export const mainFields: readonly Field[] = main.map(field);

/** The other options, by subject. */
export const moreFields: readonly { readonly title: string; readonly fields: readonly Field[] }[] = [
  ...subjects,
  ["Other options", others] as const,
].map(([title, names]) => ({ title, fields: names.map(field) }));

/** Converts the text of a field to its value in the request. An Error says what is wrong with the text. */
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

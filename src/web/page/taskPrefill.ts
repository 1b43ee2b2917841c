import type { ColumnsInfo } from "../api/schemas.js";
import type { FullTask } from "../api/taskSchemas.js";
import { scheduleFields, type Field } from "./taskFields.js";

/** What the form contains at first. */
export interface Prefill {
  /** Texts of the fields, by name. Fields that are missing take the column's default. */
  readonly texts: Readonly<Record<string, string>>;
  /** Names of the columns that the server copies, because the page does not have their values or cannot show them. */
  readonly copied: readonly string[];
}

type Column = ColumnsInfo["columns"][number];

/** Columns that a new run of the same task does not get. */
const notPrefilled = new Set(["plan", "parent"]);

/**
 * Fills the form with the options of a task. Values that equal the column's default are left out.
 *
 * @param withSchedule whether its schedule is taken over, too
 */
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

/** Returns the text of a value, or undefined if the server has to copy it. */
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

/** Returns all columns of a task. The page has null for a task that does not repeat. */
const columnsOf = ({ columns, ...task }: FullTask): Readonly<Record<string, unknown>> => ({
  ...columns,
  ...task,
  repeat: task.repeat ?? "00:00:00",
});

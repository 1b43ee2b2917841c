import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { arrayLiteral, textArrayLiteral } from "../../shared/postgres/arrayText.js";
import { describeValue } from "../../shared/describeValue.js";
import { refuseUnknownKeys } from "../../shared/refuseUnknownKeys.js";
import { newTaskKeys, type NewTask, type OwnValue } from "../newTask.js";
import { findLongCharacter, type CopiedValues, type NewRow } from "./addTask.js";

/**
 * Converts a task to a row.
 *
 * @param copied values that are copied from another row; the task does not need these
 * @throws PgTaskError USAGE if it is none, if it has an unknown property, no input, both `plan` and `delay`, or a column twice; TASK_REJECTED for more than
 * one character in a column that holds one
 */
export function toRow(task: Partial<NewTask> | string, copied?: CopiedValues): NewRow {
  const { args, delay, columns: own = {}, ...columns } = typeof task === "string" ? { input: task } : expectKnown(task);
  const { input }: { input?: unknown } = columns;
  const hasInput = typeof input === "string" && input.trim() !== "";
  if (!hasInput && (input !== undefined || copied?.columns.includes("input") !== true)) {
    throw new PgTaskError("USAGE", `expected the task's SQL in input, got ${JSON.stringify(input) ?? "nothing"}`);
  }
  refuseNone(own, delay);
  if (delay !== undefined && columns.plan !== undefined) {
    throw new PgTaskError("USAGE", "expected one of plan and delay, got both");
  }
  const twice = Object.keys(own).find((name) => name in columns || (name === "args" && args !== undefined));
  if (twice !== undefined) throw new PgTaskError("USAGE", `expected column ${twice} once, got it in columns, too`);
  const values = new Map<string, string | null>();
  for (const [name, value] of [...Object.entries<OwnValue | undefined>(columns), ...Object.entries(own)]) {
    if (value !== undefined) values.set(name, columnText(value));
  }
  if (args !== undefined) values.set("args", args === null ? null : jsonText(args));
  const long = findLongCharacter(values);
  const taskColumns = [...values.keys()].filter((name) => !Object.hasOwn(own, name));
  if (long === undefined) return { columns: values, taskColumns, delay, copied };
  throw new PgTaskError(
    "TASK_REJECTED",
    `expected ${long} with one ASCII character, got ${JSON.stringify(values.get(long))}`,
  );
}

/** Refuses values that a program without types can pass for `columns` and `delay`, but that are none. */
function refuseNone(own: unknown, delay: unknown): void {
  if (!isRecord(own)) throw new PgTaskError("USAGE", `expected columns to be an object, got ${describeValue(own)}`);
  if (delay === null) throw new PgTaskError("USAGE", "expected delay to be an interval, got null");
}

/** Whether this is an object with properties. A program without types can pass anything. */
const isRecord = (given: unknown): given is object =>
  typeof given === "object" && given !== null && !Array.isArray(given);

function expectKnown(task: Partial<NewTask>): Partial<NewTask> {
  if (!isRecord(task)) {
    throw new PgTaskError("USAGE", `expected a task: its SQL, or an object with input, got ${describeValue(task)}`);
  }
  refuseUnknownKeys(task, newTaskKeys, "a property of a task (columns of your own belong in its property columns)");
  return task;
}

/** Returns a value in PostgreSQL's syntax. */
function columnText(value: OwnValue): string | null {
  if (value === null || typeof value === "string") return value;
  if (value instanceof Date) return dateText(value);
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString("hex")}`;
  if (Array.isArray(value)) return arrayText(value);
  return typeof value === "object" ? jsonText(value) : String(value);
}

function arrayText(elements: readonly unknown[]): string {
  const texts = elements.map((element) => {
    if (element === null || element === undefined) return null;
    if (element instanceof Date) return dateText(element);
    if (typeof element === "bigint") return String(element);
    return typeof element === "string" ? element : jsonText(element);
  });
  const areNumbers = elements.every((element) => typeof element === "number" || typeof element === "bigint");
  return areNumbers ? arrayLiteral(texts) : textArrayLiteral(texts);
}

/** @throws PgTaskError USAGE for an invalid date */
function dateText(date: Date): string {
  if (Number.isNaN(date.getTime())) throw new PgTaskError("USAGE", "expected a valid date, got an invalid one");
  return date.toISOString();
}

/** @throws PgTaskError USAGE for a value that JSON cannot represent */
function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw new PgTaskError("USAGE", `expected a value that JSON can represent: ${errorMessage(error)}`, {
      cause: error,
    });
  }
}

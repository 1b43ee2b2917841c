import { errorMessage, PgTaskError } from "../shared/errors.js";
import { arrayLiteral, textArrayLiteral } from "../shared/postgres/arrayText.js";
import { findLongCharacter, type NewRow } from "../tasks/commands/addTask.js";

/** A value of a column of your own. An array becomes a PostgreSQL array, and any other object becomes JSON. */
export type OwnValue = string | number | bigint | boolean | Date | object | null;

/**
 * A task to add. Each property is a column of the task table (docs/table.md), except `delay` and `columns`. Columns that
 * are left out take their defaults. Intervals are text in PostgreSQL's syntax, such as `5 minutes`.
 */
export interface NewTask {
  /** The SQL to run. */
  readonly input: string;
  /** Values for the SQL: an array for the parameters `$1`, `$2` and so on, or an object for one parameter of type jsonb. */
  readonly args?: readonly unknown[] | Readonly<Record<string, unknown>> | null;
  /** When to start, at the earliest: a Date, or a time in PostgreSQL's syntax. */
  readonly plan?: Date | string;
  /** The time from now after which it starts, at the earliest, instead of `plan`. */
  readonly delay?: string;
  /** Name of its group. The tasks of a group share the limit `max`. */
  readonly group?: string;
  /** How many others of its group may run at the same time. A negative number is a pause after it, in ms. */
  readonly max?: number;
  /** How late it may start before it expires. */
  readonly active?: string;
  /** Maximum run time. `0` is unlimited. */
  readonly timeout?: string;
  /** Repeat at this interval. */
  readonly repeat?: string;
  /** Run by this schedule: a cron expression, an RRULE of RFC 5545, or a query that returns the next time. */
  readonly rule?: string | null;
  /** Time zone of the rule. */
  readonly zone?: string | null;
  /** Make up for every missed time of the schedule. */
  readonly catchup?: boolean | null;
  /** Plan the next run when this one starts. */
  readonly overlap?: boolean | null;
  /** The next plan counts from the end, not from the plan. */
  readonly drift?: boolean;
  /** At most one task with this key waits, and at most one runs. */
  readonly key?: string | null;
  /** Ids of older tasks for whose end it waits. */
  readonly after?: readonly (string | number | bigint)[] | null;
  /** How these have to end. */
  readonly upon?: "done" | "fail" | "end" | null;
  /** How often it is tried again after an error. */
  readonly retry?: number | null;
  /** Pause before the first retry, doubled for each further one. */
  readonly backoff?: string | null;
  /** Errors after which it is tried again: SQLSTATEs, or their first two characters. */
  readonly sqlstate?: readonly string[] | null;
  /** Least time since the last start of its group. */
  readonly gap?: string | null;
  /** How long the finished row is kept. `0` is forever. */
  readonly keep?: string;
  /** Delete the finished row if output and error are both null. */
  readonly delete?: boolean;
  /** How many tasks its session runs before it ends. */
  readonly count?: number;
  /** Maximum age of its session. */
  readonly live?: string;
  /** Keep session state between the tasks of one session. */
  readonly save?: boolean;
  /** Commit effect and `DONE` in one transaction if the SQL allows it. */
  readonly atomic?: boolean;
  /** Column names in output. */
  readonly header?: boolean;
  /** Quote only strings in output. */
  readonly string?: boolean;
  /** Separates output columns: one ASCII character. */
  readonly delimiter?: string;
  /** Escape character in output: one ASCII character, or none. */
  readonly escape?: string;
  /** Quote character in output: one ASCII character, or none. */
  readonly quote?: string;
  /** Represents null in output. */
  readonly null?: string;
  /** Free for your own use. */
  readonly data?: string | null;
  /** Connection string of another database. */
  readonly remote?: string | null;
  /** Id of the task that is recorded as its parent. */
  readonly parent?: string | number | bigint | null;
  /** Values of columns of your own, by name. */
  readonly columns?: Readonly<Record<string, OwnValue>>;
}

/**
 * Converts a task to a row.
 *
 * @throws PgTaskError USAGE if it has no input, both `plan` and `delay`, or a column twice; TASK_REJECTED for more than
 * one character in a column that holds one
 */
export function toRow(task: NewTask | string): NewRow {
  const { args, delay, columns: own = {}, ...columns } = typeof task === "string" ? { input: task } : task;
  const { input }: { input?: unknown } = columns;
  if (typeof input !== "string" || input.trim() === "") {
    throw new PgTaskError("USAGE", `expected the task's SQL in input, got ${JSON.stringify(input) ?? "nothing"}`);
  }
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
  if (long === undefined) return { columns: values, delay };
  throw new PgTaskError(
    "TASK_REJECTED",
    `expected ${long} with one ASCII character, got ${JSON.stringify(values.get(long))}`,
  );
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

import type { KnownKeys } from "../shared/refuseUnknownKeys.js";
import { columnsWith, type ColumnsWith } from "../shared/taskColumns.js";

/** A value of a column of your own. An array becomes a PostgreSQL array, and any other object becomes JSON. */
export type OwnValue = string | number | bigint | boolean | Date | object | null;

/**
 * A value in `args`, which becomes JSON. The type accepts interfaces, whose properties it cannot check: `add` does so.
 * It refuses functions, `undefined` in arrays, and objects whose contents JSON would lose, such as a Buffer, a Map or an
 * Error. In objects, properties that are `undefined` are left out.
 */
export type ArgValue = string | number | boolean | Date | null | readonly ArgValue[] | ArgObject;

/** An object in `args`, or as `args`. */
export type ArgObject = Readonly<{ [name: string]: ArgValue }> | PlainObject;

/** An object that is neither iterable nor a function nor a promise. */
export type PlainObject = object & {
  /** Arrays, typed arrays, Maps and Sets have it. */
  readonly [Symbol.iterator]?: never;
  /** Functions have it. */
  readonly [Symbol.hasInstance]?: never;
  /** Promises have it. */
  readonly then?: never;
};

/**
 * A task to add. Each property is a column of the task table (docs/table.md), except `delay` and `columns`. Columns that
 * are left out take their defaults. Intervals are text in PostgreSQL's syntax, such as `5 minutes`.
 */
export interface NewTask {
  /** The SQL to run. */
  readonly input: string;
  /** Values for the SQL: an array for the parameters `$1`, `$2` and so on, or an object for one parameter of type jsonb. */
  readonly args?: readonly ArgValue[] | ArgObject | null | undefined;
  /** When to start, at the earliest: a Date, or a time in PostgreSQL's syntax. */
  readonly plan?: Date | string | undefined;
  /** The time from now after which it starts, at the earliest, instead of `plan`. */
  readonly delay?: string | undefined;
  /** Name of its group. The tasks of a group share the limit `max`. */
  readonly group?: string | undefined;
  /** How many others of its group may run at the same time. A negative number is a pause after it, in ms. */
  readonly max?: number | undefined;
  /** How late it may start before it expires. */
  readonly active?: string | undefined;
  /** Maximum run time. `0` is unlimited. */
  readonly timeout?: string | undefined;
  /** Maximum time from its start, or that of its chain, to the end, with all tries and steps. */
  readonly within?: string | null | undefined;
  /** Of what nothing else runs beside it and its chain. */
  readonly alone?: "group" | "table" | null | undefined;
  /** Repeat at this interval. */
  readonly repeat?: string | undefined;
  /** Run by this schedule: a cron expression, an RRULE of RFC 5545, or a query that returns the next time. */
  readonly rule?: string | null | undefined;
  /** Time zone of the rule. */
  readonly zone?: string | null | undefined;
  /** Run up to this much later than the rule says, always by the same time. */
  readonly jitter?: string | null | undefined;
  /** Make up for every missed time of the schedule. */
  readonly catchup?: boolean | null | undefined;
  /** Plan the next run when this one starts. */
  readonly overlap?: boolean | null | undefined;
  /** The next plan counts from the end, not from the plan. */
  readonly drift?: boolean | undefined;
  /** At most one task with this key waits, and at most one runs. */
  readonly key?: string | null | undefined;
  /** Role that it runs as, in a table with users. The role that inserts it if left out. */
  readonly role?: string | null | undefined;
  /** Ids of older tasks for whose end it waits. */
  readonly after?: readonly (string | number | bigint)[] | null | undefined;
  /** How these have to end. */
  readonly upon?: "done" | "fail" | "end" | null | undefined;
  /** How often it is tried again after an error. */
  readonly retry?: number | null | undefined;
  /** Pause before the first retry, doubled for each further one. */
  readonly backoff?: string | null | undefined;
  /** Errors after which it is tried again: SQLSTATEs, or their first two characters. */
  readonly sqlstate?: readonly string[] | null | undefined;
  /** Pause its schedule, or its group, after so many failures in a row. */
  readonly suspend?: number | null | undefined;
  /** Channel that is notified of its id and state when it has ended. */
  readonly tell?: string | null | undefined;
  /** Least time since the last start of its group. */
  readonly gap?: string | null | undefined;
  /** How long the finished row is kept. `0` is forever. */
  readonly keep?: string | undefined;
  /** Delete the finished row if output and error are both null. */
  readonly delete?: boolean | undefined;
  /** How many tasks its session runs before it ends. */
  readonly count?: number | undefined;
  /** Maximum age of its session. */
  readonly live?: string | undefined;
  /** Keep session state between the tasks of one session. */
  readonly save?: boolean | undefined;
  /** Commit effect and `DONE` in one transaction if the SQL allows it. */
  readonly atomic?: boolean | undefined;
  /** Column names in output. */
  readonly header?: boolean | undefined;
  /** Quote only strings in output. */
  readonly string?: boolean | undefined;
  /** Separates output columns: one ASCII character. */
  readonly delimiter?: string | undefined;
  /** Escape character in output: one ASCII character, or none. */
  readonly escape?: string | undefined;
  /** Quote character in output: one ASCII character, or none. */
  readonly quote?: string | undefined;
  /** Represents null in output. */
  readonly null?: string | undefined;
  /** Free for your own use. */
  readonly data?: string | null | undefined;
  /** Connection string of another database. */
  readonly remote?: string | null | undefined;
  /** Id of the task that is recorded as its parent. */
  readonly parent?: string | number | bigint | null | undefined;
  /** Values of columns of your own, by name. */
  readonly columns?: Readonly<Record<string, OwnValue>> | undefined;
}

/**
 * What to do if another task with the key of a new task waits:
 *
 * - `error`: fail with TASK_KEY_TAKEN
 * - `skip`: leave the new task out
 * - `join`: leave the new task out, and lock the row of the task that waits, so that it starts after the caller's
 *   transaction and sees its changes
 */
export type IfKeyTaken = "error" | "skip" | "join";

type Keys = KnownKeys<Record<ColumnsWith<{ readonly by: "producer" }> | "delay" | "columns", unknown>>;

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the compiler cannot follow the names
export const newTaskKeys = Object.fromEntries(
  ["input", "args", ...columnsWith({ by: "producer" }), "delay", "columns"].map((name) => [name, true]),
) as Keys satisfies KnownKeys<NewTask>;

export type Interval = "delay" | ColumnsWith<{ readonly by: "producer"; readonly type: "interval" }>;

export const intervals: readonly Interval[] = ["delay", ...columnsWith({ by: "producer", type: "interval" })];

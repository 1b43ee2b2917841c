import type { FinalState, TaskState } from "../shared/taskState.js";

// The declarations of this file are part of the package, so it imports nothing that needs the types of the pg driver.

/** Conditions on tasks. A condition that is omitted matches all tasks. */
export interface TaskFilter {
  /** The states, any of which it has. */
  readonly states?: readonly TaskState[] | undefined;
  /** The name of its group. */
  readonly group?: string | undefined;
  /** Its key. */
  readonly key?: string | undefined;
  /** The role that it runs as, in a table with users. */
  readonly role?: string | undefined;
  /** A string that input, data or error contains, regardless of case. */
  readonly text?: string | undefined;
  /** A Date, or a time in PostgreSQL's syntax: it is planned at this time or later. */
  readonly since?: Date | string | undefined;
  /** A Date, or a time in PostgreSQL's syntax: it is planned before this time. */
  readonly until?: Date | string | undefined;
}

/** A task as shown in a list. Times are ISO 8601 strings or `infinity`. Long values are truncated. */
export interface TaskSummary {
  /** The id as a string, because it may be too large for a number to represent it exactly. */
  readonly id: string;
  /** The task that inserted this one, or whose successor it is. */
  readonly parent: string | null;
  /** The state. */
  readonly state: TaskState;
  /** Group name. */
  readonly group: string | null;
  /** When it is due. */
  readonly plan: string;
  /** When it started. */
  readonly start: string | null;
  /** When it ended. */
  readonly stop: string | null;
  /** Duration of the task's run in ms, or its duration so far if the task is still running. */
  readonly tookMs: number | null;
  /** Whether the task is marked due. Null if the task does not wait. */
  readonly ready: boolean | null;
  /** Whether the task is claimed, that is, whether it has an owner. */
  readonly claimed: boolean;
  /** Process id of the backend that runs it, or ran it last. */
  readonly pid: number | null;
  /** How many others of its group may run at the same time; negative: pause in ms. */
  readonly max: number | null;
  /** The interval at which it repeats. Null if it does not. */
  readonly repeat: string | null;
  /** The rule of its schedule. */
  readonly rule: string | null;
  /** Its key. */
  readonly key: string | null;
  /** The role that it runs as, in a table with users. */
  readonly role: string | null;
  /** How often the task is tried again after an error. */
  readonly retry: number | null;
  /** How many tries have led to another one. */
  readonly attempt: number | null;
  /** Whether the task waits for the end of others. */
  readonly held: boolean;
  /** The connection string of a remote task, with the password masked. */
  readonly remote: string | null;
  /** The SQL. */
  readonly input: string;
  /** The error of the run. */
  readonly error: string | null;
  /** The output, or null if there is no output or it is very long. */
  readonly output: string | null;
  /** Length of the whole output, in bytes. */
  readonly outputBytes: number | null;
}

/** How a task has ended. */
export interface TaskOutcome {
  /** The task's id. */
  readonly id: string;
  /** The final state. */
  readonly state: FinalState;
  /** The result of the task's SQL, as text. Null if there is none. */
  readonly output: string | null;
  /** The error of the run, as text. Null if there was none. */
  readonly error: string | null;
}

/** A change of a task's state. */
export interface TaskChange {
  /** The task's id. */
  readonly id: string;
  /** The state that the iterator has seen before. Null for a task that it had not seen. */
  readonly previous: TaskState | null;
  /** The state now. Null if the row has been deleted, or does not exist. */
  readonly state: TaskState | null;
}

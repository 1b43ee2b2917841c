import type { TaskState } from "../shared/taskState.js";
import type { TryError } from "../shared/tryErrors.js";

/**
 * A task with all its columns (docs/table.md). Ids are strings, because they can be too large for a number. Times are
 * ISO 8601 text with microseconds, or `infinity`. Intervals are text in the session's style.
 */
export interface Task {
  /** Primary key. */
  readonly id: string;
  /** The task that inserted this one, or whose successor it is. */
  readonly parent: string | null;
  /** The state. */
  readonly state: TaskState;
  /** Whether a session has the task. A task with a final state has ended only when this is false. */
  readonly claimed: boolean;
  /** When it is due. `infinity` for a paused schedule. */
  readonly plan: string;
  /** When it was claimed. */
  readonly take: string | null;
  /** When it started. */
  readonly start: string | null;
  /** When it ended. */
  readonly stop: string | null;
  /** When it was inserted. */
  readonly created: string | null;
  /** SQL to run. */
  readonly input: string;
  /** Values for its input. */
  readonly args: unknown;
  /** Result of the run. */
  readonly output: string | null;
  /** Errors of the run. */
  readonly error: string | null;
  /** Errors of tries that led to another one, the oldest first. */
  readonly errors: readonly TryError[] | null;
  /** Free for your own use. */
  readonly data: string | null;
  /** Group name. */
  readonly group: string;
  /** How many others of its group may run at the same time; negative: pause in ms. */
  readonly max: number;
  /** Shortest time between two starts in its group. */
  readonly gap: string | null;
  /** At most one task with this key waits, and at most one runs. */
  readonly key: string | null;
  /** Role that it runs as, in a table with users. */
  readonly role: string | null;
  /** Ids of the older tasks for whose end it waits. */
  readonly after: readonly string[] | null;
  /** How these have to end. */
  readonly upon: string | null;
  /** When it runs again: cron, RRULE or a query. */
  readonly rule: string | null;
  /** Time zone of the rule. */
  readonly zone: string | null;
  /** Up to how much later than the rule says it runs. */
  readonly jitter: string | null;
  /** Whether each missed time is made up for. */
  readonly catchup: boolean | null;
  /** Whether the next run is planned when this one starts. */
  readonly overlap: boolean | null;
  /** Allowed time from the start of its chain to the end. */
  readonly within: string | null;
  /** Of what nothing else runs beside its chain: `group` or `table`. */
  readonly alone: string | null;
  /** Repeat after this. */
  readonly repeat: string;
  /** Whether the next plan counts from the end. */
  readonly drift: boolean;
  /** How often it is tried again after an error. */
  readonly retry: number | null;
  /** Pause before it is tried again. */
  readonly backoff: string | null;
  /** Errors after which it is tried again. */
  readonly sqlstate: readonly string[] | null;
  /** How many tries have failed. */
  readonly attempt: number | null;
  /** After so many failures in a row, its schedule or its group is paused. */
  readonly suspend: number | null;
  /** How many runs of its schedule have failed in a row, if it has `suspend`. */
  readonly failures: number | null;
  /** Channel that is notified when it has ended. */
  readonly tell: string | null;
  /** How long after its plan it may still start. */
  readonly active: string;
  /** Allowed run time, 0 is unlimited. */
  readonly timeout: string;
  /** How long the row is kept after its end, 0 is forever. */
  readonly keep: string;
  /** Whether the row is deleted when output and error are both null. */
  readonly delete: boolean;
  /** Tasks that its session runs before it ends. */
  readonly count: number;
  /** How long its session may serve the group. */
  readonly live: string;
  /** Whether session state is kept between the tasks of one session. */
  readonly save: boolean;
  /** Whether the effect happens exactly once, where the SQL allows it. */
  readonly atomic: boolean;
  /** Whether the output has column names. */
  readonly header: boolean;
  /** Whether only strings are quoted in the output. */
  readonly string: boolean;
  /** Between columns of the output. */
  readonly delimiter: string;
  /** Escapes in the output. */
  readonly escape: string;
  /** Quotes in the output. */
  readonly quote: string;
  /** Text for null in the output. */
  readonly null: string;
  /** Connection string of another database, with its password masked. */
  readonly remote: string | null;
  /** Process id of the backend that runs it, or ran it last. */
  readonly pid: number | null;
  /** How often its run has taken its own session down. */
  readonly crash: number;
  /** Columns of your own, by name. */
  readonly columns: Readonly<Record<string, unknown>>;
}

/** The result of `stop`, `retry` or `delete` for one task. */
export interface ChangedTask {
  /** The task's id. */
  readonly id: string;
  /**
   * `changed`, or why the task was not changed: its state does not allow it (`refused`), there is no such task
   * (`missing`), another transaction holds a lock on the row, such as one that is just changing it (`locked`), or the server
   * reported an error (`failed`).
   */
  readonly outcome: "changed" | "refused" | "missing" | "locked" | "failed";
  /** The state before the change. Null if the outcome is `missing` or `failed`. */
  readonly state: TaskState | null;
  /** The result in words. */
  readonly text: string;
}

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { JobDefinition } from "../../tasks/jobs/job.js";

/** A job of another scheduler, and what becomes of it here. */
export interface SourceJob {
  /** The same each time it is imported, such as `pg_cron 42`. */
  readonly key: string;
  /** By which the source finds it. Several schedules of one job have the same. */
  readonly id: string;
  readonly name: string | null;
  /** Null where any will do. */
  readonly database: string | null;
  /** The server, if the source names one. */
  readonly host?: string | undefined;
  /** The role as which it runs there. Null if the source does not say. */
  readonly owner: string | null;
  /** Whether it runs there. */
  readonly active: boolean;
  /** Null if it cannot be imported. */
  readonly define: Define | null;
  /** What differs here, or why it cannot be imported. */
  readonly notes: readonly string[];
}

/** The table is that to which the job comes. */
export type Define = (table: TaskTable) => JobDefinition;

/** A run that has ended there. */
export interface PastRun {
  /** Of the job. */
  readonly id: string;
  readonly pid: number | null;
  readonly input: string;
  readonly ok: boolean;
  readonly message: string | null;
  /** In the server's text. */
  readonly start: string;
  readonly stop: string;
}

export interface Source {
  readonly jobs: readonly SourceJob[];
  /** What the reader of the report should know about all of them. */
  readonly remarks?: readonly string[];
  /** The last `count` runs of each of these jobs, oldest first. */
  readonly readRuns?: (ids: readonly string[], count: number) => Promise<readonly PastRun[]>;
  /** Resolves when the source can be switched without a run being started on both sides, or on none. */
  awaitMoment(): Promise<void>;
  /**
   * Switches jobs on or off. `settle` is called before this is committed, with the time since which each of them has not
   * run there: the runs after this time are ours. If it fails, nothing is switched.
   *
   * @param inTransaction whether the caller has begun a transaction on the connection of the source, and commits it
   */
  switchJobs(change: Switch, settle: (since: Since) => Promise<void>): Promise<void>;
}

export interface Switch {
  readonly on: boolean;
  readonly ids: readonly string[];
  readonly inTransaction: boolean;
}

/** By the id of the job, in the server's text. */
export type Since = ReadonlyMap<string, string>;

/** What all imported jobs have: each run leaves a row for a week, as the history of other schedulers does. */
export const kept = { keep: "7 days", delete: false } as const;

type Found = Omit<SourceJob, "notes" | "define">;

export const mapped = (job: Found, definition: JobDefinition | Define, notes: readonly string[] = []): SourceJob => ({
  ...job,
  define: typeof definition === "function" ? definition : () => definition,
  notes,
});

export const notMapped = (job: Found, ...notes: readonly string[]): SourceJob => ({ ...job, define: null, notes });

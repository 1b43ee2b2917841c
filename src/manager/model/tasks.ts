/** Types shared by claims, sessions and results. */
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import type { Run, RunResult } from "../../shared/ipc/run.js";

/** A due task and its position in its group. Tasks with a larger `max` come first, then tasks with a smaller id. */
export interface DueTask {
  readonly id: string;
  readonly hash: number;
  readonly max: number;
}

export interface OwnedTask {
  readonly id: string;
  readonly owner: string;
}

/** A task that has started, although its row does not show this yet. */
export interface StartedTask extends OwnedTask {
  /** Start time of the task. If it is null and the row has no start time yet, the time of the update is written. */
  readonly start: string | null;
}

/** With the pid of the backend that runs it on the remote server. */
export interface RemotePid extends OwnedTask {
  readonly pid: number;
}

/** A result, and the owner that must be stored in the task's row for the result to be written. */
export type OwnedResult = Extract<RunResult, { outcome: "ended" }> & {
  readonly owner: string;
  /** Hash of the task's group, if the group can pause after this task. */
  readonly pausingHash?: number | undefined;
  /** Whether the result changes nothing but the task's own row, as far as is known. */
  readonly isPlain?: boolean;
  /** Why the query of the task's rule runs again. Undefined if it does not. */
  readonly owedNote?: string | undefined;
};

export interface ClaimedTask extends Omit<Run, "session" | "ledger"> {
  readonly owner: string;
  readonly hash: number;
  readonly key: string | null;
  /** How many other tasks of its group can be running when this task starts. 0 if the column `max` is negative. */
  readonly max: number;
  /** Otherwise the task waits in the session's queue. */
  readonly startsNow: boolean;
  readonly exclusive: boolean;
  readonly mayPause: boolean;
  /** Whether nothing but its own row depends on its end, as far as the row tells. */
  readonly endsPlainly: boolean;
  /** The successor is planned before the task starts, and not when its run has ended. */
  readonly overlaps: boolean;
  /** The value of the column `data` if it may hold a trace context. Null if the claim was not traced. */
  readonly data: string | null;
  /** The version of the row that the claim wrote. Any later change gives the row another version. */
  readonly version: string;
  /** With users: the task's role, and whose session may run it (`laneOf`). */
  readonly role?: string | null;
  readonly lane?: string | null;
  /** When the task was to start, in seconds since 1970, or -Infinity. Null if the run is the query that computes the planned time. */
  readonly planned: number | null;
}

/**
 * `done`: the task's effect was committed. `failed`: the task ended its own session too often. `planned`: the task runs
 * again. `replaced`: another task waits with its key. `kept`: the task keeps a state that others have set.
 */
export type RescueOutcome = "done" | "failed" | "planned" | "replaced" | "kept";

/** A session that stays with one group as long as the `count` and `live` of the group's tasks allow. */
export interface DedicatedSession extends BackendIdentity {
  readonly hash: number;
  readonly ran: number;
  /** Time since the session's first task started, in ms. */
  readonly ageMs: number;
}

export interface OfferedSession extends BackendIdentity {
  readonly number: number;
  /** Null means that the session takes tasks of any group. */
  readonly dedication: DedicatedSession | null;
}

/** A busy session that can get more tasks. */
export interface QueueableSession extends BackendIdentity {
  readonly number: number;
  /** Expected total duration of the tasks that the session already has, in ms. */
  expectedMs: number;
  readonly groups: readonly number[];
}

export interface QueueSlot extends BackendIdentity {
  /** The queue is empty, so a task in this slot starts at once. */
  readonly startsNow: boolean;
}

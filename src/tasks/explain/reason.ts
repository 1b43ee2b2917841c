import type { StartBlocker } from "../../manager/schema/startRule.sql.js";
import type { Pause } from "../commands/pauses.js";
import type { SessionRefusal } from "../queries/sessionRefusal.js";
import type { LockWait } from "./lockWait.js";
import type { Successor } from "./scheduleState.js";
import type { LockHolder } from "./taskSituation.js";

/** A reason why a task does not start. If the task is running or has ended, the reason says so. */
export interface Reason {
  readonly code:
    | StartBlocker
    | "ended"
    | "stopping"
    | "running"
    | "waits-for-lock"
    | "rejected"
    | "unwritten"
    | "queued"
    | "orphaned"
    | "run-ends-first"
    | "table-copied"
    | "no-leader"
    | "no-manager"
    | "row-locked"
    | "behind-others"
    | "run-limit"
    | "session-limit"
    | "reserve"
    | "no-connection-room"
    | "no-session"
    | "due";
  /** The reason in one sentence. */
  readonly text: string;
  /** What the user can do about the reason, if anything. */
  readonly remedy?: string;
  /** Ids of the tasks that block this task. */
  readonly tasks?: readonly string[];
}

/**
 * Circumstances outside the task that decide whether it can start. `hasLeader` is null if this could not be determined.
 * `lock` is null if no lock was found.
 */
export interface TableSituation {
  readonly pauses: readonly Pause[];
  /** Why the table is a copy, in which nothing starts. Null if it is none. */
  readonly copy: string | null;
  readonly lock: { readonly by: LockHolder | null } | null;
  /** The lock for which the task's run waits. Null if it waits for none. */
  readonly lockWait: LockWait | null;
  /** Why the task has failed although its `retry` allows more tries, and what to do. Null if this is not so. */
  readonly notRetried: { readonly text: string; readonly remedy: string } | null;
  /** The row that goes on with the schedule of an ended run. Null if there is none. */
  readonly successor: Successor | null;
  /** Why the next run of an ended run's schedule could not be planned yet. Null if this is not so. */
  readonly owed: string | null;
  /** Names of the user's triggers that fire when the task is claimed (assigned to a session). */
  readonly triggers: readonly string[];
  readonly hasLeader: boolean | null;
  readonly hasManager: boolean;
  /** The limits on running tasks: `pg_task.run` of the table, and `pg_conf.max`. */
  readonly maxRuns: number;
  readonly maxSessions: number;
  /** The setting `pg_conf.reserve`. */
  readonly reserve: number;
  /** Number of sessions that run a task of any configured table on this server, according to pg_stat_activity. */
  readonly runningSessions: number;
  /** Number of sessions of the task's table. */
  readonly openSessions: number;
  /** Why the server refuses new sessions of the task's table. Null if it is not known to. */
  readonly sessionRefusal: SessionRefusal | null;
  /**
   * Number of connections that pg-task can still open on the server: the free ones, less those that pg-task leaves to
   * other clients. Can be negative.
   */
  readonly freeConnections: number;
}

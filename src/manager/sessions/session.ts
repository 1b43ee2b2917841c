import type { ErrorReport } from "../../shared/errors.js";
import type { RunResult } from "../../shared/ipc/run.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import type { ExecutorThread } from "./executorThreads.js";
import { SessionQueue, type QueuedTask } from "./sessionQueue.js";
import type { ClaimedTask, DedicatedSession, RemotePid, StartedTask } from "../model/tasks.js";

/**
 *   opening ──opened──▶ free ◀───last result── busy
 *      │                 │ ▲                    ▲ │
 *      │            offer│ │withdraw            │ │assign
 *      │                 ▼ │                    │◀┘
 *      │              offered ──────assign──────┘
 *      ▼
 *    gone ◀── any state, when lost, or its thread ended
 *
 *   free, offered (stale), opening ──close──▶ closing ──closed──▶ gone
 */
export type SessionState = "opening" | "free" | "offered" | "busy" | "closing" | "gone";

export interface PooledSession {
  readonly number: number;
  readonly thread: ExecutorThread;
  /** With users: the role that it runs tasks of, null for the table's owner (`laneOf`). Without, always null. */
  readonly lane: string | null;
  state: SessionState;
  /** The session's backend; null while the session is opening. */
  backend: BackendIdentity | null;
  unused: boolean;
  /** The session's tasks. Not empty while the session is busy, except while recalled runs are still unanswered. */
  readonly queue: SessionQueue;
  /** Whether the current task takes longer than expected. Then nothing is queued, and another session may be opened. */
  slow: boolean;
  /** How many recalls the session's thread has not answered yet. While there are any, no task is queued. */
  pendingRecalls: number;
  /** The pipeline permit: second key of its advisory lock. Null means none; undefined that one was requested. */
  permit: number | null | undefined;
  /** Runs that were recalled after they had been sent, until the executor reports that they did not run. */
  readonly recalledRuns: Set<string>;
  /** Whether the session's backend is gone, so its last commits may be lost. */
  distrusted: boolean;
  /** Whether a new session would differ from this one. A stale session gets no more tasks, and closes. */
  stale: boolean;
  /** When the session became free, on the process's clock. Meaningless while the session is busy. */
  idleSinceMs: number;
  /** Set while the session is dedicated, that is, stays with one group because of `count` or `live`; otherwise null. */
  dedication: Dedication | null;
}

interface Dedication {
  readonly hash: number;
  readonly ran: number;
  readonly sinceMs: number;
}

export interface SessionPoolEvents {
  /**
   * A cycle may have something to do. Unless it is `urgent` (a session may run out of tasks, or something else waits for
   * this cycle), results can be collected for a while.
   */
  changed(urgent: boolean): void;
  result(result: RunResult, owner: string, queued: QueuedTask): void;
  started(task: StartedTask): void;
  remote(place: RemotePid): void;
  /** A session ended with this task, its current or a queued one, and why, if that is known. */
  lost(task: Pick<ClaimedTask, "id" | "hash" | "key">, owner: string, isCurrent: boolean, reason: string | null): void;
  /** Nothing has been received from this session's backend for `ms` ms, although an answer is expected. */
  silent(owner: string, ms: number): void;
  opened(lane: string | null): void;
  openFailed(reason: ErrorReport, lane: string | null): void;
  objectMissing(): void;
  /** Asks for the session's current run to be cancelled. `confirmCancel` has to follow. */
  cancel(cancellation: CancellationRequest): void;
}

export interface CancellationRequest {
  readonly session: number;
  readonly id: string;
  readonly pid: number;
}

export function openingSession(number: number, thread: ExecutorThread, lane: string | null): PooledSession {
  return {
    number,
    thread,
    lane,
    state: "opening",
    backend: null,
    unused: false,
    queue: new SessionQueue(),
    slow: false,
    pendingRecalls: 0,
    permit: null,
    recalledRuns: new Set(),
    distrusted: false,
    stale: false,
    idleSinceMs: 0,
    dedication: null,
  };
}

export const isBlocked = ({ slow, stale, pendingRecalls, recalledRuns }: PooledSession): boolean =>
  slow || stale || pendingRecalls > 0 || recalledRuns.size > 0;

export function dedicationNow({ dedication }: PooledSession, { owner, pid }: BackendIdentity): DedicatedSession | null {
  if (dedication === null) return null;
  const { hash, ran, sinceMs } = dedication;
  return { owner, pid, hash, ran, ageMs: performance.now() - sinceMs };
}

export function extendDedication({ dedication }: PooledSession, hash: number): Dedication {
  if (dedication === null) return { hash, ran: 1, sinceMs: performance.now() };
  return { ...dedication, ran: dedication.ran + 1 };
}

/** Returns the dedication after a task was released without having run; null if it was the only one. */
export function shortenDedication({ dedication }: PooledSession): Dedication | null {
  if (dedication === null || dedication.ran === 1) return null;
  return { ...dedication, ran: dedication.ran - 1 };
}

import type { ErrorReport } from "../../shared/errors.js";
import type {
  BackendIdentity,
  Run,
  RunResult,
  SentRun,
  SessionRuns,
} from "../../shared/ipc/messages.js";
import type { ExecutorThread } from "./executorThreads.js";
import type { QueuedTask, SessionQueue } from "./sessionQueue.js";
import type { ClaimingSession, KeptSession } from "../claim/claimFull.sql.js";
import type { ClaimedTask } from "../claim/claimedTask.sql.js";
import type { OwnedTask } from "../results/releaseTasks.sql.js";
import type { RemotePid } from "../results/remotePid.sql.js";

/**
 *   opening ──opened──▶ free ◀──────result── busy
 *      │                 │ ▲     of the last  ▲ │
 *      │            offer│ │withdraw          │ │ assign
 *      │                 ▼ │                  │◀┘
 *      │              offered ──────assign────┘
 *      ▼
 *    gone ◀── any state, when closed, lost, or its thread ended
 */
export type SessionState = "opening" | "free" | "offered" | "busy" | "closing" | "gone";

export interface PooledSession {
  readonly number: number;
  readonly thread: ExecutorThread;
  state: SessionState;
  backend: BackendIdentity | null;
  /** Whether a turn has left it free: there was nothing for it. */
  spare: boolean;
  /** Not empty while it is busy, unless something is withheld. */
  readonly queue: SessionQueue;
  /** Whether its front takes longer than was expected: nothing may wait behind it, and another may be opened. */
  slow: boolean;
  /** How many recalls it has not answered: until then nothing is given to it behind what it has. */
  recalls: number;
  /** Second key of the lock under which it may send runs behind others; undefined while that is asked for. */
  permit: number | null | undefined;
  /** Runs that were taken back after they had been sent, until it reports that they did not run. */
  readonly withheld: Set<string>;
  /** Whether its server process is gone, so that what it committed last may be gone as well. */
  distrusted: boolean;
  /** Whether it is not as a new one would be by now: it runs nothing more, and ends. */
  stale: boolean;
  /** When it had nothing to do any more, on the process's clock; of no meaning while it has something. */
  idleSinceMs: number;
  /** Set while it stays with a group for tasks with count or live. */
  kept: { readonly hash: number; ran: number; readonly sinceMs: number } | null;
}

/** A claimed task for a session. */
export interface AssignedRun extends Pick<Run, "session" | "ledger"> {
  readonly task: ClaimedTask;
  /** Whether its row says that it runs. */
  readonly shown: boolean;
}

/** A session that a claim may use. */
export interface OfferedSession extends ClaimingSession {
  readonly number: number;
  /** Null when it takes any task; else it stays with one group. */
  readonly kept: KeptSession | null;
}

/** A busy session that may get more to do. */
export interface QueueableSession extends ClaimingSession {
  readonly number: number;
  /** How long it is busy without that, as far as one can tell, in ms. */
  aheadMs: number;
  /** Of which groups it has tasks. */
  readonly groups: readonly number[];
}

/** A task that runs, although its row does not say so yet. */
export interface StartedTask extends OwnedTask {
  /** When it started; null is now, as far as one can tell. */
  readonly start: string | null;
}

export interface SessionPoolEvents {
  /**
   * There may be something to do: results are to be written, a session has less to do, or is no more.
   *
   * @param urgent whether a session may run dry, or somebody waits; otherwise more can be gathered.
   */
  changed(urgent: boolean): void;
  result(result: RunResult, owner: string, task: QueuedTask): void;
  started(task: StartedTask): void;
  /** A remote task runs in a process of its own server. */
  remote(place: RemotePid): void;
  /** A session ended that had this task: it ran when it was the front, else it waited behind that. */
  lost(task: { readonly id: string; readonly hash: number }, owner: string, front: boolean): void;
  /** Nothing comes of this session's server process, though an answer is awaited. */
  silent(owner: string, ms: number): void;
  /** Runs have been sent behind another one, and are to be taken back. */
  recall(recall: SentRecall): void;
  /** A session needs a permit. */
  permit(session: number): void;
  /** Nothing that was sent under this permit is to begin any more. */
  revoke(permit: number): void;
  opened(): void;
  unopened(reason: ErrorReport): void;
  /** Something that pg-task made beside the table is missing. */
  lacking(): void;
  /** What the session runs is to be cancelled; `cancelled` has to follow. */
  cancel(cancellation: CancellationRequest): void;
}

/** Runs of a session that have been sent behind another one, and are to be taken back. */
export interface SentRecall extends SessionRuns {
  /** What is on the session's wire, in its order. */
  readonly sent: readonly SentRun[];
  readonly pid: number;
  /** Second key of the lock under which they were sent, null when that is given up. */
  readonly permit: number | null;
}

/** What is to be cancelled. */
export interface CancellationRequest {
  readonly session: number;
  readonly id: string;
  readonly pid: number;
}

/** As a claim sees it; null when it takes any task. */
export function keptNow(
  { kept }: PooledSession,
  { owner, pid }: BackendIdentity,
): KeptSession | null {
  if (kept === null) return null;
  return { owner, pid, hash: kept.hash, ran: kept.ran, ageMs: performance.now() - kept.sinceMs };
}

/** With one more task of the group. */
export function keptFurther(
  { kept }: PooledSession,
  hash: number,
): NonNullable<PooledSession["kept"]> {
  if (kept === null) return { hash, ran: 1, sinceMs: performance.now() };
  return { ...kept, ran: kept.ran + 1 };
}

/** With one task less of its group, which has not run after all. */
export function keptLess({ kept }: PooledSession): PooledSession["kept"] {
  return kept === null || kept.ran === 1 ? null : { ...kept, ran: kept.ran - 1 };
}

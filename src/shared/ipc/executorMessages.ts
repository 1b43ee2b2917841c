import type { MessagePort } from "node:worker_threads";
import type { ConnectionTarget } from "../postgres/target/target.js";
import type { ErrorReport } from "../errors.js";
import type { BackendIdentity } from "../postgres/backendIdentity.js";
import type { Handover } from "./handshake.js";
import type { RemoteProcess, Run, RunResult } from "./run.js";

/** Start data of an executor thread, passed by the thread pool. All other data arrives as messages on the port. */
export interface ExecutorThreadData {
  readonly port: MessagePort;
}

/** Payload of the messages `start` and `reconfigure`. */
export interface ExecutorParameters {
  /** The server to which the manager is connected. */
  readonly target: ConnectionTarget;
  /**
   * Start time of that server. A session on a server with another start time is refused. Null if the manager has not
   * been connected yet.
   */
  readonly serverStart: string | null;
  readonly schema: string;
  readonly table: string;
  /**
   * Name of the function that writes a run's proof (the row that the run commits with its effect) into a ledger. Quoted
   * and schema-qualified.
   */
  readonly finishFunction: string;
  /** Name of the function that resets a session between two tasks. Quoted and schema-qualified. */
  readonly resetFunction: string;
  /** Names of ledgers 1 and 2, the tables of proofs. Quoted and schema-qualified. */
  readonly ledgers: readonly [string, string];
  /** Maximum output of one task, in bytes of UTF-8. */
  readonly outputLimit: number;
  /** Whether the target's user is a superuser. If not, remote tasks must give a password in their connection string. */
  readonly isSuperuser: boolean;
  /**
   * If a remote run loses its connection, its server is asked whether the run is still active, at most for this long,
   * in ms.
   */
  readonly lostRunTimeoutMs: number;
}

/** Payload of the message `dispatch`. One message carries several runs across the thread boundary. */
export interface Dispatch {
  readonly runs: readonly Run[];
}

/** Runs of one session that the manager recalls, so that other sessions can run them. */
export interface RecalledRuns {
  readonly session: number;
  readonly ids: readonly string[];
  /**
   * Id of the current run, if the runs are recalled because they have waited behind it. If this run has ended when the
   * recall arrives, nothing is recalled. Null if the recall has another reason.
   */
  readonly queuedBehind: string | null;
}

/** A run that has been sent to the server but has not finished. */
export interface SentRun {
  readonly id: string;
  /**
   * Second key of the advisory lock that the run takes when it starts. The first key is the pid of the run's backend.
   */
  readonly lockKey: number;
}

/** Answer to a recall. Lists the unfinished runs that the session has sent to the server. */
export interface SentRuns extends RecalledRuns {
  /**
   * The sent runs, in the order in which they were sent. Null means that nothing was recalled, because the run in
   * `queuedBehind` had ended.
   */
  readonly sent: readonly SentRun[] | null;
}

export type ToExecutor =
  | ({ readonly type: "start" } & Handover)
  /**
   * Changes the output limit, the superuser flag and the time limit for lost remote runs. Takes effect with the next
   * run.
   */
  | ({ readonly type: "reconfigure" } & Handover)
  /** Opens sessions. Most likely, they will run tasks of this group. */
  | { readonly type: "open"; readonly sessions: readonly number[]; readonly group: string }
  | ({ readonly type: "dispatch" } & Handover)
  /** Cancels a run because its task was deleted or set to another state. */
  | { readonly type: "cancel"; readonly session: number; readonly id: string }
  /**
   * Answers `requestCancel` when pg_cancel_backend has returned or could not be called. Until the answer arrives, the
   * session sends nothing that the cancel could hit by mistake.
   */
  | { readonly type: "cancelAnswered"; readonly session: number; readonly id: string }
  /**
   * Sets the session's pipeline permit. `permit` is the second key of an advisory lock. From now on, the session can
   * send queued runs to the server, which starts them only while the manager holds that lock. Null means that the
   * session must not send queued runs.
   */
  | { readonly type: "pipelinePermit"; readonly session: number; readonly permit: number | null }
  /**
   * Recalls runs. Each run comes back as `released` unless the server has started it. Each session answers with
   * `recalled`, which lists the runs that it had sent to the server. It sends no more queued runs until it gets a new
   * permit.
   */
  | { readonly type: "recall"; readonly runs: readonly RecalledRuns[] }
  /** Tells the executor that the manager has written every large output received so far. */
  | { readonly type: "largeOutputWritten" }
  /** Ends sessions. Each session ends once the runs dispatched to it have finished. */
  | { readonly type: "close"; readonly sessions: readonly number[] }
  /** Ends sessions at once, even during a run, because their server no longer answers. */
  | { readonly type: "drop"; readonly sessions: readonly number[] }
  /** Asks sessions whose backends are idle how long their server has been silent. Answered by `silence`. */
  | { readonly type: "reportSilence"; readonly sessions: readonly number[] }
  /** Asks the server named by `remote` whether a task still runs there. Answered by `remoteProcessFound`. */
  | {
      readonly type: "findRemoteProcess";
      readonly number: number;
      /** A connection string. Contains secrets. */
      readonly remote: string;
      readonly process: RemoteProcess;
    }
  /**
   * Answers `requestConnectionPermit`. If the permit is granted, the executor must answer with `connectionPermitUsed`.
   */
  | { readonly type: "connectionPermit"; readonly number: number; readonly granted: boolean }
  /** Cancels all runs. Every unfinished run comes back as `released`. */
  | { readonly type: "abort" }
  /** Ends all sessions and then the thread's work. */
  | { readonly type: "stop" };

export type FromExecutor =
  /** The first message that a thread sends. */
  | { readonly type: "hello"; readonly threadId: number }
  | { readonly type: "opened"; readonly session: number; readonly backend: BackendIdentity }
  | { readonly type: "openFailed"; readonly session: number; readonly reason: ErrorReport }
  /**
   * Reports finished runs, whose sessions have been reset and are ready for the next runs. A result with a large output
   * is sent in a message of its own. The thread sends the next such result only after `largeOutputWritten`.
   */
  | { readonly type: "results"; readonly results: readonly RunResult[] }
  /**
   * Asks the manager to cancel the run on this session's backend and then to answer with `cancelAnswered`. Repeated as
   * long as the run continues.
   */
  | { readonly type: "requestCancel"; readonly session: number; readonly id: string }
  /** Reports that a run that was queued behind another run has been running for 50 ms. */
  | {
      readonly type: "started";
      readonly session: number;
      readonly id: string;
      readonly start: string;
    }
  /**
   * Reports the pid of the backend on the other server that runs a remote task. Sent only if the session could not
   * write the pid into the task's row, because the row was locked.
   */
  | {
      readonly type: "remoteStarted";
      readonly session: number;
      readonly id: string;
      readonly pid: number;
    }
  /**
   * Answers `reportSilence`. The session is waiting for an answer from the server, and nothing has arrived for `ms`.
   */
  | { readonly type: "silence"; readonly session: number; readonly ms: number }
  /** Answers `findRemoteProcess` with whether the backend is gone. Null means that this could not be determined. */
  | { readonly type: "remoteProcessFound"; readonly number: number; readonly gone: boolean | null }
  /** Asks the manager to reserve capacity on its server for one remote connection. Answered by `connectionPermit`. */
  | { readonly type: "requestConnectionPermit"; readonly number: number }
  /** Ends the reservation that came with a granted permit: the connection is open, or could not be opened. */
  | { readonly type: "connectionPermitUsed"; readonly number: number; readonly opened: boolean }
  /** Answers `recall`. Each session sends one such message, after the results of the runs that it released. */
  | ({ readonly type: "recalled" } & SentRuns)
  /**
   * Reports that the session's connection is lost. The manager must rescue the run in progress, that is, complete or
   * release it.
   */
  | { readonly type: "lost"; readonly session: number; readonly reason: ErrorReport }
  | { readonly type: "closed"; readonly session: number }
  | LogEntry;

/** A log line of the executor thread. The manager's thread writes it. */
export interface LogEntry {
  readonly type: "log";
  readonly level: "debug" | "warn";
  readonly fields: Readonly<Record<string, string | number>>;
  readonly message: string;
}

import type { MessagePort } from "node:worker_threads";
import type { ConnectionTarget } from "../postgres/target/target.js";
import type { ErrorReport } from "../errors.js";
import type { BackendIdentity } from "../postgres/backendIdentity.js";
import type { Handover } from "./handshake.js";
import type { RemoteProcess, RemoteRunState, Run, RunResult } from "./run.js";

export interface ExecutorThreadData {
  readonly port: MessagePort;
}

export interface ExecutorParameters {
  readonly target: ConnectionTarget;
  /** Start time of the manager's server, whose sessions alone are accepted. Null if it has not been connected yet. */
  readonly serverStart: string | null;
  readonly schema: string;
  readonly table: string;
  /** Function that writes a run's proof into a ledger. This and the next two are quoted and schema-qualified. */
  readonly finishFunction: string;
  readonly resetFunction: string;
  readonly ledgers: readonly [string, string];
  /** Names the table by which remote ledgers tell its runs from those of other tables. Quoted and schema-qualified. */
  readonly homeTable: string;
  /** In bytes of UTF-8. */
  readonly outputLimit: number;
  /** If not, remote tasks must give a password in their connection string. */
  readonly isSuperuser: boolean;
  /** With users: the login of each role whose sessions have been opened. Contains secrets. */
  readonly logins?: Readonly<Record<string, RoleLogin>>;
  /** How long, in ms, the server of a remote run that lost its connection is asked whether it is still active. */
  readonly lostRunTimeoutMs: number;
}

/** Contains a secret. */
export interface RoleLogin {
  readonly user: string;
  /** Null if the password file or another means of the administrator's serves. */
  readonly password: string | null;
  /** What ALTER ROLE has set for the role, if another one logs in for it. */
  readonly settings: Readonly<Record<string, string>>;
}

export interface Dispatch {
  readonly runs: readonly Run[];
}

/** Runs that the manager recalls, so that other sessions can run them. */
export interface RecalledRuns {
  readonly session: number;
  readonly ids: readonly string[];
  /** Id of the current run, behind which the runs have waited: if it has ended, nothing is recalled. */
  readonly queuedBehind: string | null;
}

export interface SentRun {
  readonly id: string;
  /** Second key of the advisory lock that the run takes when it starts. The first is the pid of its backend. */
  readonly lockKey: number;
}

export interface SentRuns extends RecalledRuns {
  /** In the order in which they were sent. Null: nothing was recalled, because the run in `queuedBehind` had ended. */
  readonly sent: readonly SentRun[] | null;
}

export type ToExecutor =
  | ({ readonly type: "start" } & Handover)
  /** Changes the target and the limits, but no names of objects. Takes effect with the next run. */
  | ({ readonly type: "reconfigure" } & Handover)
  /** Opens sessions, which will probably run tasks of this group. */
  | {
      readonly type: "open";
      readonly sessions: readonly number[];
      readonly group: string;
      /** With users: the role whose tasks they run, one of `logins`. Null stands for the user of the target. */
      readonly role?: string | null;
    }
  | ({ readonly type: "dispatch" } & Handover)
  /** Cancels a run, because its task was deleted or set to another state. */
  | { readonly type: "cancel"; readonly session: number; readonly id: string }
  /** pg_cancel_backend has returned or could not be called. Until then, the session sends nothing that it could hit. */
  | { readonly type: "cancelAnswered"; readonly session: number; readonly id: string }
  /** Key of an advisory lock: queued runs start only while the manager holds it. Null: no queued runs. */
  | { readonly type: "pipelinePermit"; readonly session: number; readonly permit: number | null }
  /**
   * Each run comes back as `released` unless the server has started it. Each session answers with `recalled`, and sends
   * no more queued runs until it gets a new permit.
   */
  | { readonly type: "recall"; readonly runs: readonly RecalledRuns[] }
  /** Every large output so far has been written. */
  | { readonly type: "largeOutputWritten" }
  /** Ends each session once its runs have finished. */
  | { readonly type: "close"; readonly sessions: readonly number[] }
  /** Ends sessions at once, even during a run, because the server no longer answers. */
  | { readonly type: "drop"; readonly sessions: readonly number[] }
  /** Asks how long the server has been silent. Answered by `silence`. */
  | { readonly type: "reportSilence"; readonly sessions: readonly number[] }
  /** Asks what has become of a run. Answered by `remoteProcessFound`. */
  | {
      readonly type: "findRemoteProcess";
      readonly number: number;
      /** Contains secrets. */
      readonly remote: string;
      readonly process: RemoteProcess;
    }
  /** Answers `requestConnectionPermit`. A granted permit must be answered by `connectionPermitUsed`. */
  | { readonly type: "connectionPermit"; readonly number: number; readonly granted: boolean }
  /** Cancels all runs. Every unfinished one comes back as `released`. */
  | { readonly type: "abort" }
  | { readonly type: "stop" };

export type FromExecutor =
  | { readonly type: "hello"; readonly threadId: number }
  | { readonly type: "opened"; readonly session: number; readonly backend: BackendIdentity }
  | { readonly type: "openFailed"; readonly session: number; readonly reason: ErrorReport }
  /** The sessions are ready for the next runs. A next large output is sent only after `largeOutputWritten`. */
  | { readonly type: "results"; readonly results: readonly RunResult[] }
  /** Asks to cancel a run. Answered by `cancelAnswered`, and repeated as long as the run continues. */
  | { readonly type: "requestCancel"; readonly session: number; readonly id: string }
  /** A run that was queued behind another one has been running for 50 ms. */
  | { readonly type: "started"; readonly session: number; readonly id: string; readonly start: string }
  /** The pid of the remote backend, if it could not be written to the task's row because that was locked. */
  | { readonly type: "remoteStarted"; readonly session: number; readonly id: string; readonly pid: number }
  /** Answers `reportSilence`: an answer is awaited, and nothing has arrived for `ms`. */
  | { readonly type: "silence"; readonly session: number; readonly ms: number }
  /** Null if this could not be determined. */
  | { readonly type: "remoteProcessFound"; readonly number: number; readonly state: RemoteRunState | null }
  | { readonly type: "requestConnectionPermit"; readonly number: number }
  /** Ends the reservation of a granted permit: the connection is open, or could not be opened. */
  | { readonly type: "connectionPermitUsed"; readonly number: number; readonly opened: boolean }
  /** Sent by each session after the results of the runs that it released. */
  | ({ readonly type: "recalled" } & SentRuns)
  /** The connection is lost. The manager must rescue the run in progress. */
  | { readonly type: "lost"; readonly session: number; readonly reason: ErrorReport }
  | { readonly type: "closed"; readonly session: number }
  | LogEntry;

export interface LogEntry {
  readonly type: "log";
  readonly level: "debug" | "warn";
  readonly fields: Readonly<Record<string, string | number>>;
  readonly message: string;
}

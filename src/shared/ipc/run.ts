import type { BackendIdentity } from "../postgres/backendIdentity.js";

/** How the rows of a result become text. Each property holds the value of the task's column of the same name. */
export interface OutputFormat {
  readonly header: boolean;
  readonly string: boolean;
  /** `delimiter`, `quote` and `escape` are one character each, or empty for none. */
  readonly delimiter: string;
  readonly quote: string;
  readonly escape: string;
  readonly null: string;
}

/** One execution of one task, assigned to one session. */
export interface Run extends OutputFormat {
  readonly session: number;
  /** The task's id, a bigint as text. */
  readonly id: string;
  readonly input: string;
  /** The values for the input, as JSON: an array or an object. Null if the task has none. */
  readonly args: string | null;
  readonly group: string;
  /** Allowed run time in ms. 0 means no limit. */
  readonly timeoutMs: number;
  /** Whether the session, and its remote connection if there is one, is kept for further runs of this group. */
  readonly dedicated: boolean;
  /** Whether the session keeps its state for the next run and is not reset. */
  readonly save: boolean;
  /**
   * Whether the effect is to be committed together with its proof (a ledger row), if the SQL allows being wrapped in a
   * transaction.
   */
  readonly atomic: boolean;
  /** When the task was claimed, in µs since 1970, as text. This value distinguishes the runs of one task. */
  readonly claimedAt: string;
  /** Which of the two ledgers the proof is written to. */
  readonly ledger: 1 | 2;
  /**
   * Connection string of the database that the task runs in. Contains secrets. Null means the session's own database.
   */
  readonly remote: string | null;
  /**
   * Whether the loss of a remote task's connection is an error of the task, after which its column `retry` applies.
   * Otherwise the loss counts as a crash. Only used for remote tasks.
   */
  readonly endsWithConnection: boolean;
  /** Whether the session reports at once that the run has started, because the task has a gap. */
  readonly reportsStart: boolean;
}

/**
 * Where a remote task runs: the address at which its server was reached, and the backend on that server. Contains no
 * secrets.
 */
export interface RemoteProcess extends BackendIdentity {
  readonly host: string;
  /** The server's IP address. Null means a Unix-domain socket in the directory `host`. */
  readonly address: string | null;
  readonly port: number;
}

/** What a run did to its session, regardless of the run's outcome. */
interface SessionCondition {
  readonly session: number;
  /** Whether the session is stale now, because the run left something in it that no reset removes. */
  readonly stale?: boolean | undefined;
  /** Whether an object that belongs to the table, such as a ledger or function, was missing. */
  readonly objectsMissing?: boolean | undefined;
}

/** The outcome of a run. Times are read from the database's clock, as ISO 8601 text in UTC with microseconds. */
export type RunResult =
  | (SessionCondition & {
      readonly outcome: "ended";
      readonly id: string;
      readonly start: string;
      /** Null means that the connection was lost after the run ended but before the server's clock was read. */
      readonly stop: string | null;
      readonly output: string | null;
      /** Used instead of `output` if the output is large. Contains the output, encoded in UTF-8. */
      readonly largeOutput?: Uint8Array<ArrayBuffer>;
      /** Null means that the run ended without error. */
      readonly error: string | null;
      /**
       * SQLSTATE of the error. Null if there is no error, or if a retry of the task would be pointless: pg-task itself
       * ended the run, for example because of too much output.
       */
      readonly sqlstate: string | null;
      /**
       * Whether the effect was committed while the task's row was still in state WORK. If the row is now in state STOP,
       * the stop came after the commit.
       */
      readonly committed: boolean;
      /**
       * Whether the effect was committed without waiting for the WAL flush and without a proof. If the server then
       * crashes, no ledger shows whether the effect was lost.
       */
      readonly unflushed?: boolean | undefined;
    })
  /** The task did not run, or pg-task cancelled it and its effect was rolled back. The task returns to PLAN. */
  | (SessionCondition & {
      readonly outcome: "released";
      readonly id: string;
      /** Whether the run was released because the manager's server had no capacity for the run's connection. */
      readonly serverFull?: boolean;
    });

import type { BackendIdentity } from "../postgres/backendIdentity.js";

/** How rows become text: the task's columns of the same names. */
export interface OutputFormat {
  readonly header: boolean;
  readonly string: boolean;
  /** One character each, or empty for none. */
  readonly delimiter: string;
  readonly quote: string;
  readonly escape: string;
  readonly null: string;
}

export interface Run extends OutputFormat {
  readonly session: number;
  /** A bigint as text. */
  readonly id: string;
  readonly input: string;
  /** JSON, an array or an object. Null if the task has none. */
  readonly args: string | null;
  /** A JSON object: the outputs of the tasks in `after`, by id. Null if there are none. */
  readonly results: string | null;
  readonly group: string;
  /** 0 means no limit. */
  readonly timeoutMs: number;
  /** The session, and its remote connection, is kept for further runs of this group. */
  readonly dedicated: boolean;
  /** The session keeps its state for the next run and is not reset. */
  readonly save: boolean;
  /** The effect is committed together with its proof (a ledger row), if the SQL can be wrapped in a transaction. */
  readonly atomic: boolean;
  /** In µs since 1970, as text. Distinguishes the runs of one task. */
  readonly claimedAt: string;
  /** Which ledger the proof is written to. */
  readonly ledger: 1 | 2;
  /** Connection string of the task's database. Contains secrets. Null means the session's own database. */
  readonly remote: string | null;
  /** The loss of a remote task's connection is the task's error (see `retry`). Otherwise it counts as a crash. */
  readonly endsWithConnection: boolean;
  /** The start is reported at once, because the task has a gap. */
  readonly reportsStart: boolean;
  /** With users: the task's role, and whose session it may run in, which the session compares. */
  readonly role?: string | null;
  readonly lane?: string | null;
}

/** Where a remote task runs: the address at which its server was reached, and its backend. Contains no secrets. */
export interface RemoteProcess extends BackendIdentity {
  readonly host: string;
  /** Null means a Unix-domain socket in the directory `host`. */
  readonly address: string | null;
  readonly port: number;
  /** Missing if the run writes no proof there. */
  readonly proof?: RemoteProof;
}

/** Identifies a run in the ledger of a remote server. */
export interface RemoteProof {
  /** The ledger, and its copies on replicas of the server. */
  readonly ledger: string;
  /** Start time of the server, by its own clock. */
  readonly serverStart: string;
  /** The role that owns the ledger logs in as this user, unless the connection string names one. */
  readonly user: string;
  /** Id of the task table's home, which is another one in a copy of the table. */
  readonly home: string;
  readonly id: string;
  /** The time of the claim, as in `Run`. */
  readonly claimedAt: string;
}

/** Of a run whose connection was lost. `gone`: its backend has ended, and its effect is not committed, as far as is known. */
export type RemoteRunState = "running" | "committed" | "gone";

interface SessionCondition {
  readonly session: number;
  /** The run left something in the session that no reset removes. */
  readonly stale?: boolean | undefined;
  /** An object that belongs to the table, such as a ledger or function, was missing. */
  readonly objectsMissing?: boolean | undefined;
}

/** Times are from the database's clock, as ISO 8601 text in UTC with microseconds. */
export type RunResult =
  | (SessionCondition & {
      readonly outcome: "ended";
      readonly id: string;
      readonly start: string;
      /** Null: the connection was lost after the end, before the clock was read. */
      readonly stop: string | null;
      readonly output: string | null;
      /** Used instead of `output` if that is large. UTF-8. */
      readonly largeOutput?: Uint8Array<ArrayBuffer>;
      readonly error: string | null;
      /** Also null if a retry would be pointless: pg-task itself ended the run, such as for too much output. */
      readonly sqlstate: string | null;
      /** The effect was committed while the row was in state WORK. If it is in state STOP now, the stop came later. */
      readonly committed: boolean;
      /** The effect is on another server, where a crash of this one undoes nothing. */
      readonly isRemote?: true;
      /** Committed without WAL flush and proof: if the server crashes, no ledger shows whether it was lost. */
      readonly unflushed?: boolean | undefined;
    })
  /** The task did not run, or was cancelled and rolled back. It returns to PLAN. */
  | (SessionCondition & {
      readonly outcome: "released";
      readonly id: string;
      /** The manager's server had no capacity for the run's connection. */
      readonly serverFull?: boolean;
    });

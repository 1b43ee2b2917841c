import { setMaxListeners } from "node:events";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, disconnect, sqlState, type Client } from "../../shared/postgres/client.js";
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
import { destroyOnAbort, waitAtMost, withTimeout } from "./timeLimit.js";

/** Maximum number of connections for each table. */
const maxConnections = 2;
/** Maximum number of requests that can wait for a connection at the same time. */
const maxWaiting = 64;
/** Time after which an idle connection is closed, in ms. */
const idleMs = 5_000;
/**
 * How long a request can wait for a connection, in ms. The same limit applies separately to the work that the request
 * then does on the connection. `statement_timeout` ends a single statement earlier.
 */
const requestMs = 6_000;
/**
 * How long a request waits for an unresponsive server, in ms. A server is unresponsive if it did not answer the last
 * request in time.
 */
const unresponsiveWaitMs = 250;

/** Settings of the web server's connections: read-only by default, with short timeouts. */
export const webSettings: StartupSettings = {
  default_transaction_read_only: "on",
  statement_timeout: "5s",
  lock_timeout: "1s",
  idle_in_transaction_session_timeout: "10s",
  jit: "off",
  ...indexScanSettings,
};

/**
 * The connections of one table, made as the entry's user, or those to the control database. Connections are opened on
 * demand and closed when idle. The state of one connection:
 *
 *     connecting ──▶ in use ──released──▶ idle ──unused, server unresponsive──▶ closed
 *                     │  ▲                 │                                      ▲
 *                     │  └──next request───┘                                      │
 *                     └────────────────────lost, timed out────────────────────────┘
 *
 * The state of the server:
 *
 *     responsive ──request timed out──▶ unresponsive ──connected or answered──▶ responsive
 */
export class ConnectionPool {
  readonly #target: ConnectionTarget;
  readonly #isControl: boolean;
  /** All open connections. */
  readonly #clients = new Set<Client>();
  readonly #idle: { readonly client: Client; readonly timer: NodeJS.Timeout }[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #closing = new AbortController();
  readonly #disconnecting = new Set<Promise<void>>();
  #connecting = 0;
  /** Whether the last request timed out. */
  #isUnresponsive = false;
  /** The current attempt to reach an unresponsive server; null if there is none. */
  #probe: Promise<void> | null = null;

  /** @param isControl whether these are control connections, to which the password of an entry does not apply */
  constructor(target: ConnectionTarget, isControl = false) {
    this.#target = target;
    this.#isControl = isControl;
    // Every pending request adds a listener, so the default limit on listeners is lifted.
    setMaxListeners(0, this.#closing.signal);
  }

  /**
   * Runs `work`, which must only read. `work` must end within six seconds after it gets a connection. If an idle
   * connection turns out to be closed, `work` runs again on another connection.
   *
   * @throws ApiError UNAVAILABLE if there is no connection or no table, or if `work` takes too long; BUSY if too many
   * requests wait; TOO_SLOW if a statement takes too long; CONFLICT for a lock timeout or deadlock; FORBIDDEN for a
   * missing privilege
   * @throws other errors of the server unchanged
   */
  async read<T>(work: (client: Client) => Promise<T>): Promise<T> {
    return await this.#run(work, () => true);
  }

  /**
   * Runs `work`, each statement of which is a transaction of its own and may write.
   *
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

  /** Closes all connections, including connections in use. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#dropIdle();
    await Promise.all(this.#disconnecting);
  }

  /**
   * Runs `work` on an idle connection, or on a new one.
   *
   * @param canRepeat returns whether `work` can run again on another connection if an idle connection turns out to be
   * closed
   */
  async #run<T>(work: (client: Client) => Promise<T>, canRepeat: () => boolean): Promise<T> {
    if (this.#isUnresponsive) await this.#probeServer();
    for (;;) {
      const idle = await this.#acquire();
      const done = await this.#withTimeout(async (signal) => {
        const client = idle ?? (await this.#connect(signal));
        let isLost = false;
        try {
          const result = await destroyOnAbort(signal, client, work);
          this.#isUnresponsive = false;
          return { result };
        } catch (error) {
          isLost = !(error instanceof ApiError) && endsConnection(error);
          if (signal.aborted && isLost) throw this.#timeoutError;
          if (!isLost || idle === null || !canRepeat()) throw toApiError(error);
          return null;
        } finally {
          this.#release(client, !isLost);
        }
      });
      if (done !== null) return done.result;
    }
  }

  /**
   * Tries to connect to an unresponsive server, and waits only briefly for the result.
   *
   * @throws ApiError UNAVAILABLE if the server was not reached in this time
   */
  async #probeServer(): Promise<void> {
    if (this.#probe === null) {
      if (!this.#canOpen) throw unresponsiveError();
      this.#connecting += 1;
      this.#probe = this.#withTimeout((signal) => this.#connect(signal))
        .then((client) => this.#release(client, true))
        .finally(() => (this.#probe = null));
    }
    if ((await waitAtMost(unresponsiveWaitMs, this.#probe, "late")) === "late") {
      throw unresponsiveError();
    }
  }

  /**
   * Waits for a connection.
   *
   * @returns an idle connection, or null if the caller must open one with `#connect`
   */
  async #acquire(): Promise<Client | null> {
    return await withTimeout(requestMs, this.#closing.signal, async (signal) => {
      while (!signal.aborted) {
        const free = this.#idle.pop();
        if (free !== undefined) {
          clearTimeout(free.timer);
          return free.client;
        }
        if (this.#canOpen) {
          this.#connecting += 1;
          return null;
        }
        if (this.#waiting.size >= maxWaiting) throw busyError();
        await this.#waitForRelease(signal);
        if (this.#isUnresponsive) break;
      }
      // This request may have been woken because a connection became available. It does not use the connection, so the
      // next request is woken instead.
      this.#wakeNext();
      throw this.#isUnresponsive || this.#closing.signal.aborted ? this.#timeoutError : busyError();
    });
  }

  get #canOpen(): boolean {
    return this.#clients.size + this.#connecting < maxConnections;
  }

  /** Resolves when a connection may be available or `signal` is aborted. */
  #waitForRelease(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener("abort", wake);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener("abort", wake);
    });
  }

  #wakeNext(): void {
    const [next] = this.#waiting;
    next?.();
  }

  /** Opens a connection. The caller must have counted it in `#connecting`. */
  async #connect(signal: AbortSignal): Promise<Client> {
    try {
      const client = await connectClient(this.#target, {
        applicationName: applicationNames.web,
        settings: webSettings,
        acceptsAnyText: true,
        isControl: this.#isControl,
        signal,
      });
      this.#isUnresponsive = false;
      this.#clients.add(client);
      client.once("end", () => this.#forget(client));
      return client;
    } catch (error) {
      this.#wakeNext();
      throw signal.aborted ? this.#timeoutError : toApiError(error);
    } finally {
      this.#connecting -= 1;
    }
  }

  /**
   * Runs `work` with the time limit of `requestMs`. On timeout, first marks the server as unresponsive, and only then
   * destroys the connection. Destroying it lets the next waiting request proceed, and that request must already see the
   * mark.
   */
  async #withTimeout<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return await withTimeout(requestMs, this.#closing.signal, async (signal) => {
      signal.addEventListener("abort", () => {
        this.#isUnresponsive = true;
        this.#dropIdle();
      });
      return await work(signal);
    });
  }

  get #timeoutError(): ApiError {
    return this.#closing.signal.aborted ? stoppingError() : unresponsiveError();
  }

  #release(client: Client, isUsable: boolean): void {
    // The connection may have ended in the meantime.
    if (!this.#clients.has(client)) return;
    if (!isUsable || this.#closing.signal.aborted) {
      this.#drop(client);
      return;
    }
    const timer = setTimeout(() => this.#drop(client), idleMs);
    timer.unref();
    this.#idle.push({ client, timer });
    this.#wakeNext();
  }

  #drop(client: Client): void {
    this.#forget(client);
    const disconnecting = disconnect(client).finally(() => this.#disconnecting.delete(disconnecting));
    this.#disconnecting.add(disconnecting);
  }

  #dropIdle(): void {
    for (const { client, timer } of this.#idle.splice(0)) {
      clearTimeout(timer);
      this.#drop(client);
    }
  }

  /** Removes the connection from the pool and wakes a request, which can then open another connection. */
  #forget(client: Client): void {
    if (!this.#clients.delete(client)) return;
    const index = this.#idle.findIndex((idle) => idle.client === client);
    if (index !== -1) clearTimeout(this.#idle.splice(index, 1)[0]?.timer);
    this.#wakeNext();
  }
}

const changeUnknown = "the connection was lost: it is unknown whether the change took effect";

const stoppingError = (): ApiError => new ApiError("UNAVAILABLE", "pg-task is stopping");

const busyError = (): ApiError => new ApiError("BUSY", "too many requests for this table are waiting: try again");

const unresponsiveError = (): ApiError => new ApiError("UNAVAILABLE", "the server does not answer: try again");

/**
 * Whether the error means that the connection is lost. True for certain errors of the server, and for every error that
 * does not come from the server.
 */
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

const errorsBySqlState: Readonly<Record<string, [ApiError["code"], string]>> = {
  [queryCanceled]: ["TOO_SLOW", "the query took too long: use a narrower filter"],
  [lockNotAvailable]: ["CONFLICT", "locked by another session: try again"],
  [deadlockDetected]: ["CONFLICT", "locked by another session: try again"],
  [insufficientPrivilege]: ["FORBIDDEN", "the entry's user lacks the privilege for this"],
  [readOnlyTransaction]: ["READ_ONLY", "this server is a standby or read-only: only the primary takes changes"],
  [undefinedTable]: ["UNAVAILABLE", "the table does not exist (yet)"],
  [invalidSchemaName]: ["UNAVAILABLE", "the table does not exist (yet)"],
};

import { Pool } from "pg";
import { Backoff, sleep } from "../shared/backoff.js";
import { describeValue } from "../shared/describeValue.js";
import { errorMessage, isConnectionLoss, PgTaskError } from "../shared/errors.js";
import { sqlState, type Queryable } from "../shared/postgres/client.js";
import { acceptAnyTextSql } from "../shared/postgres/startupOptions.js";
import { endsConnection } from "../tasks/taskError.js";
import { readOnlyTransaction } from "../shared/postgres/sqlStates.js";
import { ConnectionStringError } from "../shared/postgres/errors.js";
import { destroy, ignoreErrors, limitAnswers, socketOf } from "./answerLimit.js";
import { PoolConnections } from "./poolConnections.js";
import type { SqlClient, SqlPool, SqlPoolClient } from "./sqlClient.js";
import type { GivenOptions } from "../shared/postgres/connectionString/parse.js";
import { driverClients } from "../shared/postgres/driverConnection.js";
import { openStream, type OpenStream } from "../shared/postgres/openStream.js";
import { connectToFirst } from "../shared/postgres/target/connectToFirst.js";
import { parseTargetUrl, resolveTarget } from "../shared/postgres/target/resolveTarget.js";

const maxOwn = 4;

/** How long a connection that may be silent has to answer before another one is taken, in ms. */
const probeMs = 2_000;
const terminateMs = 2_000;

/** What to do if all connections of a pool are in use. Often, a transaction has one, and a call in it waits for another. */
const poolRemedy = "raise the pool's max, or pass the client of your transaction to the call";
const ownPoolRemedy = "give the TaskClient a Pool with a larger max instead of a URL";

export interface ConnectionOptions {
  readonly acquireTimeoutMs: number;
  readonly reconnectMs: number;
  readonly answerTimeoutMs: number;
}

export class Connections {
  readonly #source: { readonly pool: PoolConnections } | { readonly client: Queryable };
  /** The pool that was created for a URL; null for the caller's pool or client. */
  readonly #own: Pool | null;
  readonly #options: ConnectionOptions;
  readonly #closing = new AbortController();
  /** The clients of the own pool, and all that are in use. */
  readonly #opened = new Set<object>();
  readonly #inUse = new Set<object>();
  /** When a connection was found to be silent, and when each client has answered, on the clock of `performance.now`. */
  #silentAt = -Infinity;
  readonly #answeredAt = new WeakMap<object, number>();

  constructor(given: SqlPool | SqlClient | string, options: ConnectionOptions) {
    this.#options = options;
    const { acquireTimeoutMs: timeoutMs } = options;
    if (typeof given === "string") {
      this.#own = openPool(given, timeoutMs);
      this.#own.on("connect", (client) => void this.#opened.add(client));
      this.#own.on("remove", (client) => void this.#opened.delete(client));
      this.#source = { pool: new PoolConnections(this.#own, { timeoutMs, remedy: ownPoolRemedy }) };
    } else {
      this.#own = null;
      this.#source = isPool(given)
        ? { pool: new PoolConnections(given, { timeoutMs, remedy: poolRemedy }) }
        : { client: requireClient(given) };
    }
  }

  /** Whether all calls use the caller's own client, and run in its transaction if there is one. */
  get areCallers(): boolean {
    return "client" in this.#source;
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * @throws PgTaskError USAGE if the caller's client was never connected; CONNECTION_BUSY, CONNECTION_FAILED or
   * CONNECTION_REJECTED if the pool gives no connection; CONNECTION_CLOSED after `end`, and after that of the pool;
   * CONNECTION_READ_ONLY if its server takes no changes; CONNECTION_LOST if a statement is not answered in time
   */
  async run<T>(work: (client: Queryable) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#closing.signal.aborted) throw closedError();
    if ("client" in this.#source) return await this.runOn(this.#source.client, work, signal);
    const { pool } = this.#source;
    const acquiring = this.#acquire(pool);
    const client = await unlessAborted(acquiring, signal).catch((error: unknown) => {
      // The pool cannot withdraw the request.
      if (signal?.aborted === true) acquiring.then((late) => late.release()).catch(() => {});
      throw error;
    });
    const { answerTimeoutMs } = this.#options;
    if (signal === undefined) return await this.#use(client, answerTimeoutMs, work);
    const stopCancelling = this.#cancelOnAbort(client, pool, signal);
    return await this.#use(client, answerTimeoutMs, async (given) => {
      try {
        return await work(given);
      } finally {
        await stopCancelling();
      }
    });
  }

  /**
   * `work` goes on if the signal is aborted, because only the caller can end what runs on its client.
   *
   * @throws PgTaskError USAGE if the client was never connected; CONNECTION_LOST
   */
  async runOn<T>(client: unknown, work: (client: Queryable) => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const limited = limitAnswers(requireConnected(client), this.#options.answerTimeoutMs);
    return await unlessAborted(work(limited.client), signal);
  }

  /**
   * The statement fails then, or has succeeded already. If the server does not answer, the connection is destroyed.
   *
   * @returns stops it. Resolves when no request to cancel is under way that could end another call's statement
   */
  #cancelOnAbort(client: SqlPoolClient, pool: PoolConnections, signal: AbortSignal): () => Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    let cancelling: Promise<void> | undefined;
    const cancel = async (): Promise<void> => {
      const other = await pool.acquire();
      const pid: unknown = Reflect.get(client, "processID");
      await requireClient(other)
        .query("SELECT pg_catalog.pg_cancel_backend($1)", [pid])
        .finally(() => other.release());
    };
    const onAbort = (): void => {
      const destroyed = new Promise<void>((resolve) => {
        timer = setTimeout(() => {
          destroy(client);
          resolve();
        }, terminateMs);
      });
      cancelling = Promise.race([cancel().catch(() => {}), destroyed]);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    return async () => {
      signal.removeEventListener("abort", onAbort);
      await cancelling;
      clearTimeout(timer);
    };
  }

  /**
   * When one connection has turned out to be silent, the others often are, too. Those that have not answered since then
   * are asked first, and are replaced if they do not answer soon.
   */
  async #acquire(pool: PoolConnections): Promise<SqlPoolClient> {
    for (;;) {
      const client = await pool.acquire();
      if ((this.#answeredAt.get(client) ?? -Infinity) >= this.#silentAt) return client;
      try {
        await this.#use(client, Math.min(probeMs, this.#options.answerTimeoutMs), async (given) => {
          await given.query("SELECT");
        });
      } catch (error) {
        if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_LOST") throw error;
      }
    }
  }

  async #use<T>(client: SqlPoolClient, limitMs: number, work: (client: Queryable) => Promise<T>): Promise<T> {
    // A client that is not in its pool emits "error" when it loses its connection. Without a listener, this would end
    // the process. The statement fails as well, and reports the loss.
    const stopListening = ignoreErrors(client);
    this.#inUse.add(client);
    const limited = limitAnswers(requireClient(client), limitMs);
    let isLost = false;
    try {
      return await work(limited.client);
    } catch (error) {
      isLost = isConnectionLoss(error) || endsConnection(sqlState(error) ?? "");
      throw sqlState(error) === readOnlyTransaction ? readOnlyError(error) : error;
    } finally {
      stopListening();
      const now = performance.now();
      if (limited.isSilent()) this.#silentAt = now;
      else this.#answeredAt.set(client, now);
      this.#inUse.delete(client);
      client.release(isLost || limited.isSilent());
    }
  }

  /** The caller decides about transactions of its own client, in which `work` then runs. */
  async transaction<T>(work: (client: Queryable) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if ("client" in this.#source) return await this.run(work, signal);
    return await this.run(async (client) => {
      await client.query("BEGIN");
      try {
        const result = await work(client);
        await client.query("COMMIT");
        return result;
      } catch (error) {
        // ROLLBACK fails only if the connection is lost, and then the server rolls back anyway.
        await client.query("ROLLBACK").catch(() => {});
        throw error;
      }
    }, signal);
  }

  /**
   * `work` only reads. With a pool, `work` is repeated on another connection if its connection is lost, for as long as
   * `reconnectMs` allows. A client cannot reconnect, and an exhausted pool is reported at once.
   *
   * @throws the reason of `signal` if it was aborted meanwhile; otherwise what `toError` returns for the last error
   */
  async runPatiently<T>(
    work: (client: Queryable) => Promise<T>,
    {
      toError,
      signal = this.closing,
    }: { readonly toError: (error: unknown) => unknown; readonly signal?: AbortSignal },
  ): Promise<T> {
    const backoff = new Backoff({ firstMs: 50, maxMs: 1_000 });
    // The time counts from the loss: it can take longer to find out that a connection is silent.
    let deadlineMs: number | null = null;
    for (;;) {
      try {
        return await this.run(work);
      } catch (error) {
        signal.throwIfAborted();
        const failure = toError(error);
        deadlineMs ??= performance.now() + this.#options.reconnectMs;
        if ("client" in this.#source || !isOutage(failure) || performance.now() >= deadlineMs) throw failure;
        await sleep(backoff.next(), signal);
        signal.throwIfAborted();
      }
    }
  }

  /** Connections that the server does not close in time are destroyed. */
  async end(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(closedError());
    const timer = setInterval(() => {
      for (const client of this.#opened) if (!this.#inUse.has(client)) destroy(client);
    }, terminateMs);
    await this.#own?.end();
    clearInterval(timer);
  }
}

/** `work` goes on. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await work;
  const aborted = new AbortController();
  const failing = new Promise<never>((_, reject) => {
    const fail = (): void => reject(signal.reason);
    signal.addEventListener("abort", fail, { signal: aborted.signal });
    if (signal.aborted) fail();
  });
  work.catch(() => {});
  try {
    return await Promise.race([work, failing]);
  } finally {
    aborted.abort();
  }
}

/** A connection of a pool is in no transaction of the caller, so its server is read-only, such as during a failover. */
const readOnlyError = (error: unknown): PgTaskError =>
  new PgTaskError(
    "CONNECTION_READ_ONLY",
    `the server is a standby or read-only: ${errorMessage(error)} (SQLSTATE ${readOnlyTransaction})`,
    { cause: error, sqlState: readOnlyTransaction },
  );

/** For a method that is called after `end`. */
export const closedError = (): PgTaskError => new PgTaskError("CONNECTION_CLOSED", "the TaskClient has been ended");

/** Whether the server may be back soon. An exhausted pool is no outage: the program itself has its connections. */
const isOutage = (error: unknown): boolean =>
  error instanceof PgTaskError && error.family === "CONNECTION" && error.retryable && error.code !== "CONNECTION_BUSY";

const isPool = (given: unknown): given is SqlPool => isObject(given) && "totalCount" in given && "connect" in given;

/** @throws PgTaskError USAGE */
function requireClient(given: unknown): Queryable {
  if (isQueryable(given)) return given;
  // The elements of an array are not shown, because they can be URLs with passwords.
  const got = Array.isArray(given) ? "an array" : describeValue(given);
  throw new PgTaskError(
    "USAGE",
    `expected a Pool or Client of pg, or a URL like postgresql://user@host:port/database, got ${got}`,
  );
}

/**
 * A client that is neither connected nor connecting would keep a statement until its `connect` is called.
 *
 * @throws PgTaskError USAGE
 */
function requireConnected(given: unknown): Queryable {
  const client = requireClient(given);
  if (!wasNeverConnected(client)) return client;
  throw new PgTaskError("USAGE", "expected a Client that is connected: await its connect() first");
}

/** A failed or closed socket is destroyed. A client without one, such as of pg-native, is taken to be connected. */
function wasNeverConnected(client: object): boolean {
  const socket = socketOf(client);
  return socket !== null && socket.pending && !socket.connecting && !socket.destroyed;
}

/** A pool has `query`, too, but sends each statement over any connection, outside the caller's transaction. */
export const isCallClient = (given: unknown): boolean => isQueryable(given) && !isPool(given);

const isQueryable = (given: unknown): given is Queryable =>
  isObject(given) && "query" in given && typeof given.query === "function";

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

function openPool(url: string, acquireTimeoutMs: number): Pool {
  const given = parseUrl(url);
  const applicationName = given.get("application_name") ?? "pg-task client";
  const open = async (signal: AbortSignal): Promise<OpenStream> => {
    const target = await resolveTarget(given, { env: process.env, warn: () => {} });
    return await connectToFirst(target, signal, (server, encryption) =>
      openStream(server, encryption, { applicationName, options: "", signal }),
    );
  };
  const pool = new Pool({
    Client: driverClients(open),
    max: maxOwn,
    connectionTimeoutMillis: acquireTimeoutMs,
    // The pool waits for the promise, although its types do not say so.
    onConnect: (client): unknown => limitAnswers(client, acquireTimeoutMs).client.query(acceptAnyTextSql),
    // A process that has nothing else to do ends even if `end` is not called.
    allowExitOnIdle: true,
  });
  // The next statement reports the loss of a connection.
  pool.on("error", () => {});
  return pool;
}

function parseUrl(url: string): GivenOptions {
  try {
    const given = parseTargetUrl(url);
    if (!/,/.test(`${given.get("host")}${given.get("hostaddr")}`)) return given;
  } catch (error) {
    if (!(error instanceof ConnectionStringError)) throw error;
    throw new PgTaskError("USAGE", error.message, { cause: error });
  }
  throw new PgTaskError("USAGE", "expected a URL with one host, which is all that a TaskClient connects to");
}

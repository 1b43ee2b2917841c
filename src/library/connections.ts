import { Socket } from "node:net";
import { Client, Pool } from "pg";
import { Backoff, sleep } from "../shared/backoff.js";
import { describeValue } from "../shared/describeValue.js";
import { errorMessage, isConnectionLoss, PgTaskError } from "../shared/errors.js";
import { sqlState, type Queryable } from "../shared/postgres/client.js";
import { endsConnection } from "../tasks/taskError.js";
import { readOnlyTransaction } from "../shared/postgres/sqlStates.js";
import { ConnectionStringError } from "../shared/postgres/errors.js";
import { PoolConnections } from "./poolConnections.js";
import type { SqlClient, SqlPool } from "./sqlClient.js";
import { parseTargetUrl } from "../shared/postgres/target/parseTarget.js";

/** Maximum number of connections that a TaskClient opens itself, if it is given a URL. */
const maxOwn = 4;

/** What to do if all connections of a pool are in use. Often, a transaction has one, and a call in it waits for another. */
const poolRemedy = "raise the pool's max, or pass the client of your transaction to the call";
const ownPoolRemedy = "give the TaskClient a Pool with a larger max instead of a URL";

export interface ConnectionOptions {
  readonly acquireTimeoutMs: number;
  readonly reconnectMs: number;
}

/** The connections of a TaskClient: a pool or client of the caller, or a pool of its own. */
export class Connections {
  readonly #source: { readonly pool: PoolConnections } | { readonly client: Queryable };
  /** The pool that was created for a URL; null for the caller's pool or client. */
  readonly #own: Pool | null;
  readonly #options: ConnectionOptions;
  readonly #closing = new AbortController();

  /** @throws PgTaskError USAGE if `given` is none of the three */
  constructor(given: SqlPool | SqlClient | string, options: ConnectionOptions) {
    this.#options = options;
    const { acquireTimeoutMs: timeoutMs } = options;
    if (typeof given === "string") {
      this.#own = openPool(given, timeoutMs);
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

  /** Aborted when `end` is called. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Runs `work` on a connection.
   *
   * @throws PgTaskError USAGE if the caller's client was never connected; CONNECTION_BUSY, CONNECTION_FAILED or
   * CONNECTION_REJECTED if the pool gives no connection;
   * CONNECTION_CLOSED after `end`, and after that of the pool; CONNECTION_READ_ONLY if the server of the pool takes no
   * changes
   */
  async run<T>(work: (client: Queryable) => Promise<T>): Promise<T> {
    if (this.#closing.signal.aborted) throw closedError();
    if ("client" in this.#source) return await work(requireConnected(this.#source.client));
    const client = await this.#source.pool.acquire();
    // A client that is not in its pool emits "error" when it loses its connection. Without a listener, this would end
    // the process. The statement fails as well, and reports the loss.
    const stopListening = ignoreErrors(client);
    let isLost = false;
    try {
      return await work(requireClient(client));
    } catch (error) {
      isLost = isConnectionLoss(error) || endsConnection(sqlState(error) ?? "");
      throw sqlState(error) === readOnlyTransaction ? readOnlyError(error) : error;
    } finally {
      stopListening();
      client.release(isLost);
    }
  }

  /**
   * Runs `work` in a transaction. If the connection is the caller's own client, the caller decides about transactions,
   * and `work` runs in the caller's.
   */
  async transaction<T>(work: (client: Queryable) => Promise<T>): Promise<T> {
    if ("client" in this.#source) return await this.run(work);
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
    });
  }

  /**
   * Runs `work`, which only reads. With a pool, `work` is repeated on another connection if its connection is lost, for
   * as long as `reconnectMs` allows. A client cannot reconnect, and an exhausted pool is reported at once.
   *
   * @param options.toError converts the error of `work`
   * @param options.signal ends the repetitions
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
    const deadlineMs = performance.now() + this.#options.reconnectMs;
    for (;;) {
      try {
        return await this.run(work);
      } catch (error) {
        signal.throwIfAborted();
        const failure = toError(error);
        if ("client" in this.#source || !isOutage(failure) || performance.now() >= deadlineMs) throw failure;
        await sleep(backoff.next(), signal);
        signal.throwIfAborted();
      }
    }
  }

  /** Ends the connections that were opened for a URL. */
  async end(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(closedError());
    await this.#own?.end();
  }
}

/** A connection of a pool is in no transaction of the caller, so its server is read-only, such as during a failover. */
const readOnlyError = (error: unknown): PgTaskError =>
  new PgTaskError(
    "CONNECTION_READ_ONLY",
    `the server is a standby or read-only: ${errorMessage(error)} (SQLSTATE ${readOnlyTransaction})`,
    { cause: error, sqlState: readOnlyTransaction },
  );

/** The error of a method that is called after `end`. */
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
 * Returns a client that the caller has connected, or is connecting. Any other would keep a statement until its `connect` is
 * called, and the call would never settle.
 *
 * @throws PgTaskError USAGE
 */
export function requireConnected(given: unknown): Queryable {
  const client = requireClient(given);
  if (!wasNeverConnected(client)) return client;
  throw new PgTaskError("USAGE", "expected a Client that is connected: await its connect() first");
}

/**
 * Whether nobody has called the client's `connect`. Its socket says so: one that has failed or was closed is destroyed. A
 * client without such a socket, such as one of pg-native, is taken to be connected.
 */
function wasNeverConnected(client: object): boolean {
  const connection: unknown = Reflect.get(client, "connection");
  const stream: unknown = isObject(connection) ? Reflect.get(connection, "stream") : undefined;
  return stream instanceof Socket && stream.pending && !stream.connecting && !stream.destroyed;
}

/**
 * Whether this can be the client of a call. A pool has the method `query`, too, but sends each statement over any of its
 * connections, outside the caller's transaction.
 */
export const isCallClient = (given: unknown): boolean => isQueryable(given) && !isPool(given);

/** Whether this is a client. A program without types can pass anything. */
const isQueryable = (given: unknown): given is Queryable =>
  isObject(given) && "query" in given && typeof given.query === "function";

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

function openPool(url: string, acquireTimeoutMs: number): Pool {
  try {
    parseTargetUrl(url);
  } catch (error) {
    if (!(error instanceof ConnectionStringError)) throw error;
    throw new PgTaskError("USAGE", error.message, { cause: error });
  }
  if (!hasOneHost(url)) {
    throw new PgTaskError("USAGE", "expected a URL with one host, which is all that the pg driver can connect to");
  }
  const pool = new Pool({
    connectionString: url,
    max: maxOwn,
    application_name: "pg-task client",
    connectionTimeoutMillis: acquireTimeoutMs,
    keepAlive: true,
    // A process that has nothing else to do ends even if `end` is not called.
    allowExitOnIdle: true,
  });
  // The next statement reports the loss of a connection.
  pool.on("error", () => {});
  return pool;
}

/** Whether the driver can read the URL, and finds one host in it. Its errors are not shown, because they contain the URL. */
function hasOneHost(url: string): boolean {
  try {
    return !new Client({ connectionString: url }).host.includes(",");
  } catch {
    return false;
  }
}

interface ErrorSource {
  on(event: "error", listener: () => void): unknown;
  off(event: "error", listener: () => void): unknown;
}

const emitsErrors = (client: object): client is ErrorSource =>
  "on" in client && typeof client.on === "function" && "off" in client && typeof client.off === "function";

function ignoreErrors(client: object): () => void {
  if (!emitsErrors(client)) return () => {};
  client.on("error", ignore);
  return () => void client.off("error", ignore);
}

const ignore = (): void => {};

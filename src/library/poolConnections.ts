import { errorMessage, partsOfError, PgTaskError, systemErrorCode } from "../shared/errors.js";
import { sqlState } from "../shared/postgres/client.js";
import type { SqlPool, SqlPoolClient } from "./sqlClient.js";

interface Waiting {
  readonly timeoutMs: number;
  readonly remedy: string;
}

export class PoolConnections {
  readonly #pool: SqlPool;
  readonly #waiting: Waiting;
  /**
   * Requests that nobody waits for any more, in the pool's queue. A pool cannot withdraw them, so the next calls take
   * them over, or the queue would grow for as long as the pool is exhausted.
   */
  readonly #queued = new Set<Promise<SqlPoolClient>>();

  constructor(pool: SqlPool, waiting: Waiting) {
    this.#pool = pool;
    this.#waiting = waiting;
  }

  /**
   * @throws PgTaskError CONNECTION_BUSY if no connection becomes free in time; CONNECTION_FAILED or CONNECTION_REJECTED
   * if none can be opened; CONNECTION_CLOSED after the end of the pool
   */
  async acquire(): Promise<SqlPoolClient> {
    const [request = this.#pool.connect()] = this.#queued;
    this.#queued.delete(request);
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<null>((resolve) => {
      timer = setTimeout(resolve, this.#waiting.timeoutMs, null);
    });
    try {
      const client = await Promise.race([request, timeout]);
      if (client !== null) return client;
    } catch (error) {
      throw toConnectError(error, this.#pool, this.#waiting);
    } finally {
      clearTimeout(timer);
    }
    throw this.#giveUp(request);
  }

  /** If the pool answers the request later, the client returns at once. */
  #giveUp(request: Promise<SqlPoolClient>): PgTaskError {
    // A request that the pool has begun to answer is not in its queue, and must not delay the next call: an attempt to
    // connect can go on for minutes after the server is back.
    const isQueued = this.#pool.waitingCount > 0;
    if (isQueued) this.#queued.add(request);
    void this.#settle(request, isQueued);
    return isQueued ? busyError(this.#pool, this.#waiting) : slowError(this.#waiting.timeoutMs);
  }

  /** Releases the client unless a call has taken the request over. */
  async #settle(request: Promise<SqlPoolClient>, isQueued: boolean): Promise<void> {
    try {
      const client = await request;
      if (!isQueued || this.#queued.delete(request)) client.release();
    } catch {
      this.#queued.delete(request);
    }
  }
}

function toConnectError(error: unknown, pool: SqlPool, waiting: Waiting): PgTaskError {
  // The client's own pool fails with errors that already say everything.
  const isOwn = error instanceof PgTaskError;
  const state = isOwn ? (error.sqlState ?? null) : sqlState(error);
  const cause = { cause: error };
  if (state !== null) {
    const message = isOwn
      ? error.message
      : `the server refused the connection: ${errorMessage(error)} (SQLSTATE ${state})`;
    // While the server starts or shuts down, it refuses connections with these.
    const code = state.startsWith("57P0") ? "CONNECTION_FAILED" : "CONNECTION_REJECTED";
    return new PgTaskError(code, message, { ...cause, sqlState: state });
  }
  if (isOwn) return error;
  if (errorMessage(error).includes("client password must be")) {
    const message =
      "the server asks for a password, and none was given: give one in the URL, in PGPASSWORD or in a password file";
    return new PgTaskError("CONNECTION_REJECTED", message, cause);
  }
  if (errorMessage(error).includes("Cannot use a pool after calling end")) {
    return new PgTaskError("CONNECTION_CLOSED", "the pool of the TaskClient has been ended", cause);
  }
  if (errorMessage(error).includes("timeout exceeded when trying to connect")) return busyError(pool, waiting);
  return new PgTaskError("CONNECTION_FAILED", `no connection to the server: ${reason(error)}`, cause);
}

const reason = (error: unknown): string =>
  partsOfError(error)?.map(errorMessage).join("; ") ?? (errorMessage(error) || systemErrorCode(error));

function busyError({ totalCount, idleCount, waitingCount }: SqlPool, { timeoutMs, remedy }: Waiting): PgTaskError {
  const message = `no connection of the pool became free within ${timeoutMs} ms (${totalCount} open, ${idleCount} idle, ${waitingCount} waiting): ${remedy}`;
  return new PgTaskError("CONNECTION_BUSY", message);
}

const slowError = (timeoutMs: number): PgTaskError =>
  new PgTaskError("CONNECTION_FAILED", `no connection to the server: it was not opened within ${timeoutMs} ms`);

import type { ConnectionTarget } from "../shared/config/types.js";
import { connect, disconnect, sqlState, type Client } from "../shared/database.js";
import { PgTaskError } from "../shared/errors.js";
import type { StartupSettings } from "../shared/startup.js";
import { readingSettings } from "../tasks/readingSettings.js";
import { WebProblem } from "./problem.js";

/** Connections of one table at most; who comes later waits. */
const mostConnections = 2;
const mostWaiting = 64;
/** An unused connection is closed after this, in ms. */
const idleMs = 5_000;

export const applicationName = "pg_task web";

/** The page reads, unless it says otherwise, and is never long about it. */
export const webSettings: StartupSettings = {
  default_transaction_read_only: "on",
  default_transaction_isolation: "read committed",
  statement_timeout: "5s",
  lock_timeout: "1s",
  idle_in_transaction_session_timeout: "10s",
  DateStyle: "ISO",
  IntervalStyle: "postgres",
  standard_conforming_strings: "on",
  jit: "off",
  ...readingSettings,
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
};

/** Connections of the entry's user that are opened when they are needed and closed when not. */
export class Connections {
  readonly #target: ConnectionTarget;
  readonly #idle: { readonly client: Client; readonly timer: NodeJS.Timeout }[] = [];
  readonly #waiting: (() => void)[] = [];
  readonly #ending = new AbortController();
  readonly #goodbyes = new Set<Promise<void>>();
  #open = 0;

  constructor(target: ConnectionTarget) {
    this.#target = target;
  }

  /**
   * Runs something that only reads.
   *
   * @throws WebProblem UNAVAILABLE without a connection, BUSY, TOO_SLOW, CONFLICT for what somebody
   * has locked; what the server says otherwise
   */
  async read<T>(work: (client: Client) => Promise<T>): Promise<T> {
    const client = await this.#take();
    let kept = true;
    try {
      return await work(client);
    } catch (error) {
      // One that the server did not raise leaves the connection in an unknown state.
      kept = sqlState(error) !== null;
      throw translated(error);
    } finally {
      this.#giveBack(client, kept);
    }
  }

  /** Runs something that writes, as one transaction. @throws as `read` */
  async write<T>(work: (client: Client) => Promise<T>): Promise<T> {
    return await this.read(async (client) => {
      await client.query("BEGIN READ WRITE");
      try {
        const result = await work(client);
        await client.query("COMMIT");
        return result;
      } catch (error) {
        await client.query("ROLLBACK");
        throw error;
      }
    });
  }

  /** Ends all connections; those at work are cut off. */
  async close(): Promise<void> {
    this.#ending.abort();
    for (const { client, timer } of this.#idle.splice(0)) {
      clearTimeout(timer);
      this.#drop(client);
    }
    await Promise.all(this.#goodbyes);
  }

  async #take(): Promise<Client> {
    while (!this.#ending.signal.aborted) {
      const free = this.#idle.pop();
      if (free !== undefined) {
        clearTimeout(free.timer);
        return free.client;
      }
      if (this.#open < mostConnections) return await this.#connect();
      if (this.#waiting.length >= mostWaiting) {
        throw new WebProblem("BUSY", "too many requests for this table wait: try again");
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    throw new WebProblem("UNAVAILABLE", "pg-task is stopping");
  }

  async #connect(): Promise<Client> {
    this.#open += 1;
    try {
      const client = await connect(this.#target, {
        applicationName,
        settings: webSettings,
        signal: this.#ending.signal,
      });
      client.once("end", () => this.#forget(client));
      return client;
    } catch (error) {
      this.#open -= 1;
      this.#waiting.shift()?.();
      throw translated(error);
    }
  }

  #giveBack(client: Client, kept: boolean): void {
    if (!kept || this.#ending.signal.aborted) this.#drop(client);
    else {
      const timer = setTimeout(() => {
        this.#forget(client);
        this.#drop(client);
      }, idleMs);
      timer.unref();
      this.#idle.push({ client, timer });
    }
    this.#waiting.shift()?.();
  }

  #drop(client: Client): void {
    this.#open -= 1;
    const goodbye = disconnect(client).finally(() => this.#goodbyes.delete(goodbye));
    this.#goodbyes.add(goodbye);
  }

  /** Not to be used any more, if it was idle. */
  #forget(client: Client): void {
    const place = this.#idle.findIndex((idle) => idle.client === client);
    if (place === -1) return;
    const [idle] = this.#idle.splice(place, 1);
    clearTimeout(idle?.timer);
  }
}

function translated(error: unknown): unknown {
  if (error instanceof WebProblem) return error;
  if (error instanceof PgTaskError && error.family === "CONNECTION") {
    return new WebProblem("UNAVAILABLE", error.message, { cause: error });
  }
  const state = sqlState(error);
  if (state === null) {
    return new WebProblem("UNAVAILABLE", "the connection to the server ended", { cause: error });
  }
  const words = refusals[state];
  return words === undefined ? error : new WebProblem(...words, { cause: error });
}

const refusals: Readonly<Record<string, [WebProblem["code"], string]>> = {
  "57014": ["TOO_SLOW", "the server took too long: narrow what you look for"],
  "55P03": ["CONFLICT", "somebody holds the row: try again"],
  "40P01": ["CONFLICT", "somebody holds the row: try again"],
  "42501": ["FORBIDDEN", "the entry's user may not do that"],
  "42P01": ["UNAVAILABLE", "the table does not exist (yet)"],
  "3F000": ["UNAVAILABLE", "the table does not exist (yet)"],
};

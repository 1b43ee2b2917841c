import { setMaxListeners } from "node:events";
import type { ConnectionTarget } from "../../shared/config/types.js";
import { connectClient, disconnect, sqlState, type Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import type { StartupSettings } from "../../shared/postgres/startupOptions.js";
import { readingSettings } from "../../tasks/connectionSettings.js";
import { WebProblem } from "../errors.js";
import { cutOffAt, inTime, limited } from "./timeLimit.js";

/** Connections of one table at most; who comes later waits. */
const mostConnections = 2;
const mostWaiting = 64;
/** An unused connection is closed after this, in ms. */
const idleMs = 5_000;
/**
 * How long a question waits for a place at most, and how long it may take after that, in ms; the server itself ends
 * a statement before.
 */
const questionMs = 6_000;
/** How long a question waits for a server that was silent before, in ms. */
const againMs = 250;

export const webApplicationName = "pg_task web";

/** The page reads, unless it says otherwise, and is never long about it. */
export const webSettings: StartupSettings = {
  default_transaction_read_only: "on",
  statement_timeout: "5s",
  lock_timeout: "1s",
  idle_in_transaction_session_timeout: "10s",
  jit: "off",
  ...readingSettings,
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
};

/** Connections of the entry's user that are opened when they are needed and closed when not. */
export class Connections {
  readonly #target: ConnectionTarget;
  /** All that are open. */
  readonly #clients = new Set<Client>();
  readonly #idle: { readonly client: Client; readonly timer: NodeJS.Timeout }[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #ending = new AbortController();
  readonly #goodbyes = new Set<Promise<void>>();
  #connecting = 0;
  /** Whether the last question had no answer in time. */
  #silent = false;
  /** The attempt to reach a silent server again. */
  #attempt: Promise<void> | null = null;

  constructor(target: ConnectionTarget) {
    this.#target = target;
    // Each question that is under way listens.
    setMaxListeners(0, this.#ending.signal);
  }

  /**
   * Runs something that only reads, within six seconds of its turn. It is run again when a connection
   * turns out to have ended while nobody used it.
   *
   * @throws WebProblem UNAVAILABLE without a connection or an answer in time, BUSY, TOO_SLOW,
   * CONFLICT for what somebody has locked; what the server says otherwise
   */
  async read<T>(work: (client: Client) => Promise<T>): Promise<T> {
    return await this.#ask(work, () => true);
  }

  /** Runs something that writes, as one transaction. @throws as `read` */
  async write<T>(work: (client: Client) => Promise<T>): Promise<T> {
    let committing = false;
    const transaction = async (client: Client): Promise<T> => {
      await client.query("BEGIN READ WRITE");
      try {
        const result = await work(client);
        committing = true;
        await client.query("COMMIT");
        return result;
      } catch (error) {
        if (committing && isLoss(error)) throw new WebProblem("UNAVAILABLE", unknown);
        // It fails only where the connection has ended, and the transaction with it.
        await client.query("ROLLBACK").catch(() => {});
        throw error;
      }
    };
    return await this.#ask(transaction, () => !committing);
  }

  /** Ends all connections; those at work are cut off. */
  async close(): Promise<void> {
    this.#ending.abort();
    this.#dropIdle();
    await Promise.all(this.#goodbyes);
  }

  /** @param repeatable whether `work`, whose connection was lost, may be run again */
  async #ask<T>(work: (client: Client) => Promise<T>, repeatable: () => boolean): Promise<T> {
    if (this.#silent) await this.#reachAgain();
    for (;;) {
      const idle = await this.#place();
      const done = await this.#limited(async (signal) => {
        const client = idle ?? (await this.#connect(signal));
        let lost = false;
        try {
          const result = await cutOffAt(signal, client, work);
          this.#silent = false;
          return { result };
        } catch (error) {
          lost = !(error instanceof WebProblem) && isLoss(error);
          if (signal.aborted && lost) throw this.#givenUp;
          if (!lost || idle === null || !repeatable()) throw translated(error);
          return null;
        } finally {
          this.#giveBack(client, !lost);
        }
      });
      if (done !== null) return done.result;
    }
  }

  /** Nobody waits long for a server that was silent. @throws WebProblem UNAVAILABLE unless it is reached */
  async #reachAgain(): Promise<void> {
    if (this.#attempt === null) {
      if (!this.#hasRoom) throw unanswered();
      this.#connecting += 1;
      this.#attempt = this.#limited((signal) => this.#connect(signal))
        .then((client) => this.#giveBack(client, true))
        .finally(() => (this.#attempt = null));
    }
    if ((await inTime(againMs, this.#attempt, "late")) === "late") throw unanswered();
  }

  /**
   * Waits for its turn.
   *
   * @returns an open connection, or null for the place of one that is to be opened by `#connect`.
   */
  async #place(): Promise<Client | null> {
    return await limited(questionMs, this.#ending.signal, async (signal) => {
      while (!signal.aborted) {
        const free = this.#idle.pop();
        if (free !== undefined) {
          clearTimeout(free.timer);
          return free.client;
        }
        if (this.#hasRoom) {
          this.#connecting += 1;
          return null;
        }
        if (this.#waiting.size >= mostWaiting) throw busy();
        await this.#room(signal);
        if (this.#silent) break;
      }
      // The place that it was told of may be somebody else's.
      this.#wakeNext();
      throw this.#silent || this.#ending.signal.aborted ? this.#givenUp : busy();
    });
  }

  get #hasRoom(): boolean {
    return this.#clients.size + this.#connecting < mostConnections;
  }

  /** Resolves when a place may be free, or the signal is aborted. */
  #room(signal: AbortSignal): Promise<void> {
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

  /** Opens one whose place is taken: it counts in `#connecting`. */
  async #connect(signal: AbortSignal): Promise<Client> {
    try {
      const client = await connectClient(this.#target, {
        applicationName: webApplicationName,
        settings: webSettings,
        signal,
      });
      this.#silent = false;
      this.#clients.add(client);
      client.once("end", () => this.#forget(client));
      return client;
    } catch (error) {
      this.#wakeNext();
      throw signal.aborted ? this.#givenUp : translated(error);
    } finally {
      this.#connecting -= 1;
    }
  }

  /** When the time is over, the server counts as silent before what was cut off makes room for others. */
  async #limited<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return await limited(questionMs, this.#ending.signal, async (signal) => {
      signal.addEventListener("abort", () => {
        this.#silent = true;
        this.#dropIdle();
      });
      return await work(signal);
    });
  }

  get #givenUp(): WebProblem {
    return this.#ending.signal.aborted ? stopping() : unanswered();
  }

  #giveBack(client: Client, kept: boolean): void {
    // It may have ended meanwhile.
    if (!this.#clients.has(client)) return;
    if (!kept || this.#ending.signal.aborted) {
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
    const goodbye = disconnect(client).finally(() => this.#goodbyes.delete(goodbye));
    this.#goodbyes.add(goodbye);
  }

  #dropIdle(): void {
    for (const { client, timer } of this.#idle.splice(0)) {
      clearTimeout(timer);
      this.#drop(client);
    }
  }

  /** Not to be used any more: there is room for another one. */
  #forget(client: Client): void {
    if (!this.#clients.delete(client)) return;
    const place = this.#idle.findIndex((idle) => idle.client === client);
    if (place !== -1) clearTimeout(this.#idle.splice(place, 1)[0]?.timer);
    this.#wakeNext();
  }
}

const unknown = "the connection ended at the commit: whether it was done is not known";

const stopping = (): WebProblem => new WebProblem("UNAVAILABLE", "pg-task is stopping");

const busy = (): WebProblem =>
  new WebProblem("BUSY", "too many requests for this table wait: try again");

const unanswered = (): WebProblem =>
  new WebProblem("UNAVAILABLE", "the server does not answer: try again");

/** Whether the connection is lost: the server has said so, or it was not the server that failed. */
function isLoss(error: unknown): boolean {
  const state = sqlState(error);
  // Ended by an administrator, a shutdown, a crash, for idling, or over its protocol.
  return state === null || /^(57P0|25P0[34]|08)/.test(state);
}

function translated(error: unknown): unknown {
  if (error instanceof WebProblem) return error;
  if (error instanceof PgTaskError && error.family === "CONNECTION") {
    return new WebProblem("UNAVAILABLE", error.message, { cause: error });
  }
  if (isLoss(error)) {
    return new WebProblem("UNAVAILABLE", "the connection to the server ended", { cause: error });
  }
  const words = refusals[sqlState(error) ?? ""];
  return words === undefined ? error : new WebProblem(...words, { cause: error });
}

const refusals: Readonly<Record<string, [WebProblem["code"], string]>> = {
  "57014": ["TOO_SLOW", "the server took too long: narrow what you look for"],
  "55P03": ["CONFLICT", "somebody holds a lock on it: try again"],
  "40P01": ["CONFLICT", "somebody holds a lock on it: try again"],
  "42501": ["FORBIDDEN", "the entry's user may not do that"],
  "42P01": ["UNAVAILABLE", "the table does not exist (yet)"],
  "3F000": ["UNAVAILABLE", "the table does not exist (yet)"],
};

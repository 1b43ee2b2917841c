import { sleep } from "../backoff.js";
import type { ConnectionTarget } from "../config/types.js";
import { connectClient, disconnect, type Client } from "./client.js";
import { PgTaskError } from "../errors.js";
import { ownerSql } from "./backendIdentity.js";

/** At rest it is asked so much less often. */
const lessOften = 30;
/** How often it looks for the answer, and at what distance in ms, before it asks the server. */
const patience = { looks: 2, everyMs: 50 };
/**
 * How often the server is asked, and at what distance, in ms, before a process that does nothing is cut off:
 * with the patience before it long enough for a lost packet to be sent again.
 */
const questions = 5;
const betweenMs = 70;
/** A process that works is not asked for again sooner, in ms: at first, and after many times. */
const againMs = { first: 1_000, longest: 8_000 };
/** How long the server may take to let somebody in who asks about the connection, in ms. */
const askMs = 5_000;

/**
 * Ends a connection that a network has swallowed: no end of it would ever arrive. When nothing has
 * been heard for a while it sends a query, and when that is not answered it asks the server over a
 * connection of its own. A server process that still works on what was sent is left alone, however
 * long that takes; one that waits for us is cut off, and is ended, for it holds our locks.
 */
export class ConnectionWatchdog {
  readonly #client: Client;
  readonly #target: ConnectionTarget;
  readonly #name: string;
  readonly #quietMs: number;
  readonly #rests: () => boolean;
  #timer: NodeJS.Timeout;
  #heardAt = performance.now();
  /** How often it was asked, and whether anything has come since it was last. */
  #asked = 0;
  #heard = true;
  /** How often it was looked for an answer without one. */
  #looked = 0;
  /** Whether it is to be asked late, since it rests. */
  #resting = false;
  #asking = false;
  #askedAt = -Infinity;
  #againMs = againMs.first;
  #over = false;

  /**
   * @param options.name application name of the connection that asks
   * @param options.quietMs after so long without a word it is asked
   * @param options.rests whether it need not be known soon
   */
  constructor(
    client: Client,
    target: ConnectionTarget,
    options: { readonly name: string; readonly quietMs: number; readonly rests?: () => boolean },
  ) {
    this.#client = client;
    this.#target = target;
    this.#name = options.name;
    this.#quietMs = options.quietMs;
    this.#rests = options.rests ?? (() => false);
    this.#timer = this.#after(this.#quietMs, () => this.#look());
    client.connection.stream.on("data", this.#hear);
    client.once("end", this.stop);
  }

  readonly stop = (): void => {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#client.connection.stream.off("data", this.#hear);
    this.#client.off("end", this.stop);
  };

  #after(ms: number, then: () => void): NodeJS.Timeout {
    return setTimeout(then, ms).unref();
  }

  readonly #hear = (): void => {
    this.#heardAt = performance.now();
    if (this.#heard && !this.#resting) return;
    this.#heard = true;
    this.#resting = false;
    clearTimeout(this.#timer);
    this.#timer = this.#after(this.#quietMs, () => this.#look());
  };

  /** Sends a query when it has been quiet for long enough. */
  #look(): void {
    this.#resting = this.#rests();
    const quietMs = this.#resting ? lessOften * this.#quietMs : this.#quietMs;
    const leftMs = this.#heardAt + quietMs - performance.now();
    if (leftMs > 0) this.#timer = this.#after(Math.ceil(leftMs), () => this.#look());
    else {
      this.#resting = false;
      this.#looked = 0;
      this.#asked += 1;
      this.#heard = false;
      this.#againMs = againMs.first;
      this.#client.query("SELECT").catch(() => {});
      this.#timer = this.#after(patience.everyMs, () => this.#await());
    }
  }

  /** Looks for the answer; what came while this thread was busy is read before the second look. */
  #await(): void {
    this.#looked += 1;
    const late = this.#looked >= patience.looks;
    if (late) void this.#ask();
    this.#timer = this.#after(late ? this.#quietMs : patience.everyMs, () => this.#await());
  }

  async #ask(): Promise<void> {
    if (this.#asking || performance.now() - this.#askedAt < this.#againMs) return;
    this.#asking = true;
    const asked = this.#asked;
    const settled = (): boolean => this.#over || this.#heard || this.#asked !== asked;
    const works = await this.#works(settled).catch((error: unknown) => !isUnreachable(error));
    this.#asking = false;
    this.#askedAt = performance.now();
    this.#againMs = Math.min(2 * this.#againMs, againMs.longest);
    if (!works && !settled()) this.#client.connection.stream.destroy();
  }

  /**
   * Whether its server process works on what was sent; if not, that is ended.
   *
   * @param settled whether the connection has ended, or said something, meanwhile
   */
  async #works(settled: () => boolean): Promise<boolean> {
    const client = await connectClient(
      { ...this.#target, connectTimeoutMs: askMs },
      { applicationName: this.#name, signal: AbortSignal.timeout(askMs) },
    );
    try {
      const pid = "processID" in this.#client ? this.#client.processID : null;
      let before: Process | null = null;
      for (let question = 0; question < questions; question += 1) {
        const { rows } = await client.query<Process>(
          `SELECT state IS DISTINCT FROM 'idle' AND wait_event_type IS DISTINCT FROM 'Client' AS works,
             ${ownerSql("a")} AS owner, state_change::text AS since
           FROM pg_catalog.pg_stat_activity AS a WHERE pid = $1`,
          [pid],
        );
        const [now] = rows;
        if (now === undefined) return false;
        // What has happened meanwhile may be why it does nothing now.
        if (now.works || settled()) return true;
        if (before !== null && before.since !== now.since) return true;
        before = now;
        await sleep(betweenMs);
      }
      if (settled()) return true;
      await client.query(
        `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity AS a
         WHERE pid = $1 AND ${ownerSql("a")} = $2`,
        [pid, before?.owner],
      );
      return false;
    } finally {
      await disconnect(client);
    }
  }
}

/** What the server says of the connection's process. */
interface Process {
  readonly works: boolean;
  readonly owner: string | null;
  /** When it began to do nothing. */
  readonly since: string | null;
}

/** A server that refuses to let somebody in is there. */
const isUnreachable = (error: unknown): boolean =>
  error instanceof PgTaskError && error.code === "CONNECTION_FAILED";

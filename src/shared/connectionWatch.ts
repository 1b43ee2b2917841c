import { pause } from "./backoff.js";
import type { ConnectionTarget } from "./config/types.js";
import { connect, disconnect, type Client } from "./database.js";
import { PgTaskError } from "./errors.js";
import { ownerSql } from "./identity.js";

/** How often it looks whether the connection says anything, in ms, and how much less often at rest. */
const everyMs = 100;
const lessOften = 20;
/** How often it is asked, and at what distance, in ms, before a process that does nothing is cut off. */
const questions = 5;
const betweenMs = 40;
/** How often it looks without an answer before it asks the server. */
const patience = 2;
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
export class ConnectionWatch {
  readonly #client: Client;
  readonly #target: ConnectionTarget;
  readonly #name: string;
  readonly #rests: () => boolean;
  readonly #timer: NodeJS.Timeout;
  /** Whether anything has come since the last look. */
  #heard = true;
  /** How often it was looked for the answer to a beat, null when none is awaited. */
  #looked: number | null = null;
  #ticks = 0;
  #asking = false;
  #askedAt = -Infinity;
  #againMs = againMs.first;
  #over = false;

  /**
   * @param options.name application name of the connection that asks
   * @param options.rests whether it need not be known soon
   */
  constructor(
    client: Client,
    target: ConnectionTarget,
    options: { readonly name: string; readonly rests?: () => boolean },
  ) {
    this.#client = client;
    this.#target = target;
    this.#name = options.name;
    this.#rests = options.rests ?? (() => false);
    this.#timer = setInterval(() => this.#look(), everyMs);
    this.#timer.unref();
    client.connection.stream.on("data", () => (this.#heard = true));
    client.once("end", () => this.stop());
  }

  stop(): void {
    this.#over = true;
    clearInterval(this.#timer);
  }

  #look(): void {
    this.#ticks += 1;
    if (this.#rests() && this.#ticks % lessOften !== 0) return;
    if (this.#heard) {
      this.#heard = false;
      this.#looked = null;
      this.#againMs = againMs.first;
    } else if (this.#looked === null) this.#beat();
    else if ((this.#looked += 1) >= patience) void this.#ask();
  }

  #beat(): void {
    this.#looked = 0;
    this.#client.query("SELECT").catch(() => {});
  }

  async #ask(): Promise<void> {
    if (this.#asking || performance.now() - this.#askedAt < this.#againMs) return;
    this.#asking = true;
    const works = await this.#works().catch((error: unknown) => !isUnreachable(error));
    this.#asking = false;
    this.#askedAt = performance.now();
    this.#againMs = Math.min(2 * this.#againMs, againMs.longest);
    if (!this.#over && !works && !this.#heard) this.#client.connection.stream.destroy();
  }

  /** Whether its server process works on what was sent; if not, that is ended. */
  async #works(): Promise<boolean> {
    const client = await connect(
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
        if (now.works || this.#heard || this.#over) return true;
        if (before !== null && before.since !== now.since) return true;
        before = now;
        await pause(betweenMs);
      }
      if (this.#heard || this.#over) return true;
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

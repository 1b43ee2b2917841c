import type { ConnectionTarget } from "./config/types.js";
import { connect, disconnect, type Client } from "./database.js";
import { PgTaskError } from "./errors.js";
import { ownerSql } from "./identity.js";

/** How often it looks whether the connection says anything, and how long an answer may take, in ms. */
const everyMs = 1_000;
const answerMs = 2_000;
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
  readonly #timer: NodeJS.Timeout;
  /** Whether anything has come since the last look. */
  #heard = true;
  /** When a beat was sent that has not been answered. */
  #sent: number | null = null;
  #asking = false;
  #over = false;

  /** @param name application name of the connection that asks */
  constructor(client: Client, target: ConnectionTarget, name: string) {
    this.#client = client;
    this.#target = target;
    this.#name = name;
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
    if (this.#heard) {
      this.#heard = false;
      this.#sent = null;
    } else if (this.#sent === null) this.#beat();
    else if (performance.now() - this.#sent >= answerMs) void this.#ask();
  }

  #beat(): void {
    this.#sent = performance.now();
    this.#client.query("SELECT").catch(() => {});
  }

  async #ask(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    const works = await this.#works().catch((error: unknown) => !isUnreachable(error));
    this.#asking = false;
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
      const { rows } = await client.query<{ works: boolean; owner: string | null }>(
        `SELECT state IS DISTINCT FROM 'idle' AND wait_event_type IS DISTINCT FROM 'Client' AS works,
           ${ownerSql("a")} AS owner
         FROM pg_catalog.pg_stat_activity AS a WHERE pid = $1`,
        [pid],
      );
      const [process] = rows;
      if (process === undefined) return false;
      // It has answered meanwhile: that may be why it does nothing now.
      if (process.works || this.#heard || this.#over) return true;
      await client.query(
        `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity AS a
         WHERE pid = $1 AND ${ownerSql("a")} = $2`,
        [pid, process.owner],
      );
      return false;
    } finally {
      await disconnect(client);
    }
  }
}

/** A server that refuses to let somebody in is there. */
const isUnreachable = (error: unknown): boolean =>
  error instanceof PgTaskError && error.code === "CONNECTION_FAILED";

import { EventEmitter } from "eventemitter3";
import { Backoff, pause } from "../shared/backoff.js";
import type { ConnectionTarget } from "../shared/config/types.js";
import { connect, disconnect, type Client } from "../shared/database.js";
import { ConnectionWatch } from "../shared/connectionWatch.js";
import { lockClasses } from "../shared/locks.js";
import { toReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";

/** How often a standby tries the lock, in ms. */
const lockTryMs = 500;
const longestPauseMs = 10_000;

interface LeadershipEvents {
  leader: [];
  standby: [];
}

/**
 * Who leads the cluster: whoever's connection holds the lock.
 *
 *   connecting ──lock free──▶ leader
 *    ▲   │                     │
 *    │   └──lock held──▶ standby (tries again and again)
 *    └────────connection lost───┘
 */
export class Leadership extends EventEmitter<LeadershipEvents> {
  /** Where the next connection goes. */
  target: ConnectionTarget;
  readonly #name: string;
  readonly #log: Log;
  readonly #ending = new AbortController();
  #client: Client | null = null;
  #work: Promise<void> = Promise.resolve();

  constructor(options: {
    readonly target: ConnectionTarget;
    /** Of the cluster. */
    readonly name: string;
    readonly log: Log;
  }) {
    super();
    this.target = options.target;
    this.#name = options.name;
    this.#log = options.log;
  }

  start(): void {
    this.#work = this.#seekForEver();
  }

  /** Gives the lock up, if it is held, by ending the connection. */
  async stop(): Promise<void> {
    this.#ending.abort();
    if (this.#client !== null) await disconnect(this.#client);
    await this.#work;
  }

  async #seekForEver(): Promise<void> {
    const backoff = new Backoff({ firstMs: 100, maxMs: longestPauseMs });
    let said: string | null = null;
    while (!this.#ending.signal.aborted) {
      try {
        await this.#seek(() => {
          backoff.reset();
          said = null;
        });
      } catch (error) {
        if (this.#ending.signal.aborted) return;
        const { code, message } = toReport(error);
        if (said !== message)
          this.#log.warn({ code, reason: message }, "supervisor waits for the server");
        said = message;
        await pause(backoff.next(), this.#ending.signal);
      }
    }
  }

  async #seek(connected: () => void): Promise<void> {
    const client = await connect(this.target, {
      applicationName: "pg_conf",
      settings: { tcp_keepalives_idle: 5, tcp_keepalives_interval: 2, tcp_keepalives_count: 3 },
      signal: this.#ending.signal,
    });
    this.#client = client;
    const lost = new Promise<void>((resolve) => client.once("end", resolve));
    const watch = new ConnectionWatch(client, this.target, "pg_conf watch");
    try {
      // Told to stop while it connected: nobody else would end this connection.
      if (this.#ending.signal.aborted) return;
      connected();
      if (!(await this.#tryLock(client))) {
        this.emit("standby");
        do {
          if (!(await pause(lockTryMs, this.#ending.signal))) return;
        } while (!(await this.#tryLock(client)));
      }
      this.emit("leader");
      await lost;
      if (!this.#ending.signal.aborted) this.#log.warn("the supervisor's connection ended");
    } finally {
      this.#client = null;
      watch.stop();
      await disconnect(client);
    }
  }

  async #tryLock(client: Client): Promise<boolean> {
    const { rows } = await client.query<{ locked: boolean }>(
      "SELECT pg_catalog.pg_try_advisory_lock($1, pg_catalog.hashtext($2)) AS locked",
      [lockClasses.supervisor, this.#name],
    );
    return rows[0]?.locked === true;
  }
}

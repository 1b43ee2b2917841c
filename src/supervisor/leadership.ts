import { EventEmitter } from "eventemitter3";
import { Backoff, sleep } from "../shared/backoff.js";
import type { ConnectionTarget } from "../shared/config/types.js";
import { connectClient, disconnect, type Client } from "../shared/postgres/client.js";
import { PgTaskError, toReport } from "../shared/errors.js";
import { ConnectionWatchdog } from "../shared/postgres/connectionWatchdog.js";
import { lockClasses } from "../shared/postgres/advisoryLocks.js";
import type { Log } from "../shared/log.js";
import { identifier } from "../shared/postgres/quoting.js";

/** How often a standby tries the lock when it hears nothing, in ms. */
const lockTryMs = 200;
/** How long the server may take to answer, in ms. */
const answerMs = 10_000;
/** How long it may take to pass the lock on, in ms. */
const handOverMs = 1_000;
/** The managers of its server wait for it as well, and a try costs next to nothing. */
const longestPauseMs = 1_000;
/** After so long without a word its connection is looked after, in ms. */
const quietMs = 200;

interface LeadershipEvents {
  /** The server has let it in. */
  connected: [];
  leader: [];
  standby: [];
  /** The connection is gone: who leads is open. */
  lost: [];
}

/**
 * Who leads the cluster: whoever's connection holds the lock.
 *
 *   connecting ──lock free──▶ leader ──stop──▶ (frees the lock and tells the standbys)
 *    ▲   │                     │
 *    │   └──lock held──▶ standby (tries again when it is told, and now and then)
 *    └────────connection lost───┘
 *
 * A leader that was killed can tell nobody: its lock is found free at the next try.
 */
export class Leadership extends EventEmitter<LeadershipEvents> {
  /** Where the next connection goes. */
  target: ConnectionTarget;
  readonly #name: string;
  readonly #log: Log;
  readonly #rests: () => boolean;
  readonly #ending = new AbortController();
  /** Aborted when there is no reason to wait any longer. */
  #waiting = new AbortController();
  #client: Client | null = null;
  #leads = false;
  #yielded = false;
  #work: Promise<void> = Promise.resolve();

  constructor(options: {
    readonly target: ConnectionTarget;
    /** Of the cluster. */
    readonly name: string;
    readonly log: Log;
    /** Whether it need not be known soon that a leader's connection is gone. */
    readonly rests: () => boolean;
  }) {
    super();
    this.target = options.target;
    this.#name = options.name;
    this.#log = options.log;
    this.#rests = options.rests;
  }

  start(): void {
    this.#work = this.#seekForEver();
  }

  /** Gives the lock up, if it is held, tells the standbys so, and seeks it no more. */
  async yield(): Promise<void> {
    this.#yielded = true;
    if (this.#client !== null && this.#leads) await this.#handOver(this.#client);
    this.#leads = false;
  }

  /** Gives the lock up, if it is held, and ends the connection. */
  async stop(): Promise<void> {
    // Before anything ends the connection.
    await this.yield();
    this.#ending.abort();
    this.#waiting.abort();
    if (this.#client !== null) await disconnect(this.#client);
    await this.#work;
  }

  async #seekForEver(): Promise<void> {
    const backoff = new Backoff({ firstMs: 100, maxMs: longestPauseMs, calmMs: 1_000 });
    let said: string | null = null;
    while (!this.#ending.signal.aborted && !this.#yielded) {
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
        await sleep(backoff.next(), this.#ending.signal);
      }
    }
  }

  async #seek(connected: () => void): Promise<void> {
    const client = await connectClient(this.target, {
      applicationName: "pg_conf",
      settings: {
        search_path: "pg_catalog",
        tcp_keepalives_idle: 5,
        tcp_keepalives_interval: 2,
        tcp_keepalives_count: 3,
      },
      signal: this.#ending.signal,
    });
    this.#client = client;
    const lost = new Promise<void>((resolve) => client.once("end", resolve));
    for (const event of ["end", "notification"] as const) {
      client.on(event, () => this.#waiting.abort());
    }
    const watch = new ConnectionWatchdog(client, this.target, {
      name: "pg_conf watch",
      quietMs,
      rests: () => this.#leads && this.#rests(),
    });
    try {
      // Told to stop while it connected: nobody else would end this connection.
      if (this.#ending.signal.aborted) return;
      connected();
      this.emit("connected");
      if (!(await this.#standBy(client))) return;
      this.#leads = true;
      this.emit("leader");
      await lost;
      if (!this.#ending.signal.aborted) this.#log.warn("the supervisor's connection ended");
    } finally {
      this.#client = null;
      this.#leads = false;
      if (!this.#ending.signal.aborted) this.emit("lost");
      watch.stop();
      await disconnect(client);
    }
  }

  /** Resolves when it has the lock; false when it was told to stop before. */
  async #standBy(client: Client): Promise<boolean> {
    // Heard from before the first try, so that no word of the lock being free goes unheard.
    const channel = await answered(this.#channel(client), answerMs);
    await answered(client.query(`LISTEN ${identifier(channel)}`), answerMs);
    for (let tries = 0; !(await answered(this.#tryLock(client), answerMs)); tries += 1) {
      if (tries === 0) this.emit("standby");
      await this.#wait(lockTryMs);
      if (this.#ending.signal.aborted) return false;
    }
    return true;
  }

  /** Until that time has passed, or it is told something, or the connection ends. */
  async #wait(ms: number): Promise<void> {
    if (!this.#ending.signal.aborted) await sleep(ms, this.#waiting.signal);
    this.#waiting = new AbortController();
  }

  async #tryLock(client: Client): Promise<boolean> {
    const { rows } = await client.query<{ locked: boolean }>(
      "SELECT pg_try_advisory_lock($1, hashtext($2)) AS locked",
      [lockClasses.supervisor, this.#name],
    );
    return rows[0]?.locked === true;
  }

  /** What standbys of this cluster listen to. */
  async #channel(client: Client): Promise<string> {
    const { rows } = await client.query<{ channel: string }>(
      "SELECT concat('pg_conf_', hashtext($1)) AS channel",
      [this.#name],
    );
    return rows[0]?.channel ?? "";
  }

  /** The word goes out when the statement has ended, so the lock is free by then. */
  async #handOver(client: Client): Promise<void> {
    const statement = client.query(
      `SELECT pg_advisory_unlock($1, hashtext($2)), pg_notify(concat('pg_conf_', hashtext($2)), '')`,
      [lockClasses.supervisor, this.#name],
    );
    // Where that fails, the end of the connection frees the lock.
    await answered(statement, handOverMs).catch(() => {});
  }
}

/** @throws PgTaskError CONNECTION_LOST when the server has not answered within `ms`. */
async function answered<T>(query: Promise<T>, ms: number): Promise<T> {
  const over = new AbortController();
  const late = sleep(ms, over.signal).then((whole) => {
    if (!whole) return query;
    query.catch(() => {});
    throw new PgTaskError("CONNECTION_LOST", `expected an answer of the server within ${ms} ms`);
  });
  try {
    return await Promise.race([query, late]);
  } finally {
    over.abort();
  }
}

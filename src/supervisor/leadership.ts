import { once } from "node:events";
import { EventEmitter } from "eventemitter3";
import { Backoff, sleep } from "../shared/backoff.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import { applicationNames, isSupervisorSql } from "../shared/postgres/applicationNames.js";
import { backendPid, connectClient, disconnect, type Client } from "../shared/postgres/client.js";
import { PgTaskError, toReport, type ErrorReport } from "../shared/errors.js";
import { ConnectionWatchdog } from "../shared/postgres/connectionWatchdog.js";
import { lockClasses } from "../shared/postgres/advisoryLocks.js";
import type { Log } from "../shared/log.js";
import { areSame, publishEntries, readPublishedEntries } from "./publishedEntries.js";
import { isPortMessage } from "./portRequests.js";
import { releasedMessage } from "./releasedDatabases.js";
import { FrozenHolder } from "../shared/postgres/frozenHolder.js";
import { literal } from "../shared/postgres/quoting.js";
import { isRollCall, openRollCall } from "../shared/postgres/rollCall.js";

/** Interval at which a standby tries to take the lock if no notification arrives, in ms. */
const lockRetryMs = 200;
/** A standby compares its entries with those of the leader at the second attempt to take the lock, and then this often. */
const attemptsPerComparison = 50;
/** How long to wait for an answer from the server, in ms. */
const answerTimeoutMs = 10_000;
/** How long an offer of the leadership lasts, in ms. */
const offerMs = 1_000;
/** Time limit, in ms, for releasing the lock when the process stops. */
const handOverTimeoutMs = 1_000;
/** Longest delay between connection attempts, in ms. It is short because managers wait for the connection as well. */
const maxRetryMs = 1_000;
/** Time without traffic after which the connection is probed, in ms. */
const quietMs = 200;
/** The same while this process leads and no manager needs a session, in ms. */
const idleQuietMs = 6_000;

interface LeadershipOptions {
  readonly name: string;
  readonly log: Log;
  /** Returns true while there is no work. Then the loss of the leader's connection need not be noticed soon. */
  readonly isIdle: () => boolean;
  readonly entryHashes: () => ReadonlySet<number>;
  /** Returns how long a leader may go without an answer before its connection is ended, in ms. 0 means forever. */
  readonly frozenMs: () => number;
}

interface LeadershipEvents {
  connected: [backendPid: number | null];
  leader: [];
  standby: [];
  /** The control connection could not be opened, or failed before this process led. It is tried again. */
  failed: [reason: ErrorReport];
  /** Whether the leader's entries are the same as this standby's. */
  compared: [areSame: boolean];
  /** The control connection was lost, so another process may lead now. */
  lost: [];
  /** Another process of the cluster has sent a message about a port. */
  portMessage: [payload: string];
  /** A database was released for maintenance, or is to be served again. */
  released: [];
}

/**
 * Competes for leadership. The process whose control connection holds the advisory lock is the leader.
 *
 *   connecting ──▶ standby ──lock acquired──▶ leader ──yield──▶ (lock released, standbys notified)
 *       ▲             │                         │
 *       └──connection lost, or offer accepted───┘
 *
 * A standby tries to take the lock whenever a notification arrives, and also periodically: a leader that is killed
 * sends no notification. If the lock is free at the first attempt, the process leads without having been a standby.
 */
export class Leadership extends EventEmitter<LeadershipEvents> {
  target: ConnectionTarget;
  readonly #options: LeadershipOptions;
  #published: ReadonlySet<number> = new Set();
  readonly #ending = new AbortController();
  /** Aborted to make a waiting standby retry the lock at once. */
  #retryNow = new AbortController();
  #client: Client | null = null;
  #isLeader = false;
  /** Aborted when another process leads instead of this one. */
  #replaced = new AbortController();
  #hasReplacedFrozen = false;
  #hasYielded = false;
  #work: Promise<void> = Promise.resolve();

  constructor(options: LeadershipOptions & { readonly target: ConnectionTarget }) {
    super();
    this.target = options.target;
    this.#options = options;
  }

  /** Whether this process has ended the connection of a frozen leader before it became the leader. */
  get hasReplacedFrozen(): boolean {
    return this.#hasReplacedFrozen;
  }

  start(): void {
    this.#work = this.#run();
  }

  /** Lets other processes know the entries of this process. */
  async publishEntries(): Promise<void> {
    const client = this.#client;
    const hashes = this.#options.entryHashes();
    const previous = this.#published;
    if (client === null || areSame(hashes, previous)) return;
    this.#published = hashes;
    // If the statement fails, the connection is lost, and they are published on the next one.
    await publishEntries(client, hashes, previous).catch(() => {});
  }

  /** @throws PgTaskError CONNECTION_LOST without a control connection; the errors of `work` */
  async use<T>(work: (control: Client) => Promise<T>): Promise<T> {
    if (this.#client === null) throw new PgTaskError("CONNECTION_LOST", "there is no control connection");
    return await work(this.#client);
  }

  /** Notifies the other processes of the cluster. Does nothing without a connection. */
  notify(payload: string): void {
    // It changes nothing, so its commit need not wait for the disk or for replicas. If it fails, the connection is lost.
    this.#client
      ?.query(`SELECT set_config('synchronous_commit', 'off', true), pg_notify(concat('pg_conf_', hashtext($1)), $2)`, [
        this.#options.name,
        payload,
      ])
      .catch(() => {});
  }

  /**
   * Offers the leadership to the standbys: releases the lock, and takes it again after a second. If another process has
   * taken it, this one stands by.
   */
  async offer(): Promise<void> {
    const client = this.#client;
    if (client === null || !this.#isLeader) return;
    await this.#handOver(client);
    await sleep(offerMs, this.#ending.signal);
    if (client !== this.#client || this.#hasYielded) return;
    // If the statement fails, the connection is lost.
    if (await this.#tryLock(client).catch(() => true)) return;
    this.#options.log.warn("leadership left to another process, no entry can be served here");
    this.#replaced.abort();
  }

  async yield(): Promise<void> {
    this.#hasYielded = true;
    if (this.#client !== null && this.#isLeader) await this.#handOver(this.#client);
    this.#isLeader = false;
  }

  async stop(): Promise<void> {
    // Release the lock first, while the connection is still open.
    await this.yield();
    this.#ending.abort();
    this.#retryNow.abort();
    if (this.#client !== null) await disconnect(this.#client);
    await this.#work;
  }

  async #run(): Promise<void> {
    const backoff = new Backoff({ firstMs: 100, maxMs: maxRetryMs, calmMs: 1_000 });
    let lastLogged: string | null = null;
    while (!this.#ending.signal.aborted && !this.#hasYielded) {
      try {
        await this.#connectAndCompete(() => {
          backoff.reset();
          lastLogged = null;
        });
      } catch (error) {
        if (this.#ending.signal.aborted) return;
        const report = toReport(error);
        const { code, message } = report;
        this.emit("failed", report);
        const pauseMs = backoff.next();
        if (message !== lastLogged)
          this.#options.log.warn({ code, reason: message, pauseMs }, "control connection failed, retrying");
        lastLogged = message;
        await sleep(pauseMs, this.#ending.signal);
      }
    }
  }

  async #connectAndCompete(onConnected: () => void): Promise<void> {
    const client = await connectClient(this.target, {
      applicationName: applicationNames.supervisor,
      writable: true,
      isControl: true,
      signal: this.#ending.signal,
    });
    this.#client = client;
    this.#published = new Set();
    const lost = new Promise<void>((resolve) => client.once("end", resolve));
    client.on("end", () => this.#retryNow.abort());
    client.on("notification", ({ payload = "", processId }) => {
      if (isRollCall(payload)) return;
      if (payload === releasedMessage) this.emit("released");
      else if (!isPortMessage(payload)) this.#retryNow.abort();
      // The server sends a process its own notifications as well.
      else if (processId !== backendPid(client)) this.emit("portMessage", payload);
    });
    const watchdog = new ConnectionWatchdog(client, {
      name: applicationNames.supervisorWatch,
      quietMs,
      restMs: () => (this.#isLeader && this.#options.isIdle() ? idleQuietMs : null),
    });
    try {
      // If stop() was called while connecting, it could not end this connection.
      if (this.#ending.signal.aborted) return;
      onConnected();
      this.emit("connected", backendPid(client));
      if (!(await this.#acquireLock(client))) return;
      this.#isLeader = true;
      void this.publishEntries();
      this.#replaced = new AbortController();
      this.emit("leader");
      await Promise.race([lost, once(this.#replaced.signal, "abort")]);
      const isReported = this.#ending.signal.aborted || this.#replaced.signal.aborted;
      if (!isReported) this.#options.log.warn("control connection lost");
    } finally {
      this.#client = null;
      this.#isLeader = false;
      if (!this.#ending.signal.aborted) this.emit("lost");
      watchdog.stop();
      await disconnect(client);
    }
  }

  /** Waits until this process holds the lock. Returns false if it was stopped before that. */
  async #acquireLock(client: Client): Promise<boolean> {
    // Listen for notifications before the first attempt to take the lock, so that no release of the lock is missed.
    const channel = await awaitAnswer(this.#channel(client), answerTimeoutMs);
    const holder = new FrozenHolder(client, () => askAll(), {
      lock: { class: lockClasses.supervisor, key: `hashtext(${literal(this.#options.name)})` },
      isPgTaskSql: isSupervisorSql,
      frozenMs: this.#options.frozenMs,
      lines: {
        ended: "leader does not answer, its connection was ended",
        refused: "leader does not answer, and this role may not end its connection",
        foreign: "a session of another role or program holds the leader's lock",
        foreignEnded: "a session of another role and program held the leader's lock, it was ended",
      },
      fields: {},
      ended: () => (this.#hasReplacedFrozen = true),
      log: this.#options.log,
    });
    const askAll = await awaitAnswer(
      openRollCall(client, channel, {
        isPresent: () => this.#isLeader,
        answered: (pid) => holder.answered(pid),
      }),
      answerTimeoutMs,
    );
    this.#hasReplacedFrozen = false;
    for (let attempts = 0; !(await awaitAnswer(this.#tryLock(client), answerTimeoutMs)); attempts += 1) {
      if (attempts === 0) {
        this.emit("standby");
        void this.publishEntries();
      }
      if (attempts % attemptsPerComparison === 1) await this.#compareEntries(client);
      await this.#wait(lockRetryMs);
      if (this.#ending.signal.aborted) return false;
      await awaitAnswer(holder.check(lockRetryMs), answerTimeoutMs);
    }
    return true;
  }

  async #compareEntries(client: Client): Promise<void> {
    const { leader } = await awaitAnswer(readPublishedEntries(client, this.#options.name), answerTimeoutMs);
    if (leader !== null) this.emit("compared", areSame(leader, this.#options.entryHashes()));
  }

  /** Waits until a notification arrives or the connection ends, at most `ms`. */
  async #wait(ms: number): Promise<void> {
    if (!this.#ending.signal.aborted) await sleep(ms, this.#retryNow.signal);
    this.#retryNow = new AbortController();
  }

  async #tryLock(client: Client): Promise<boolean> {
    const { rows } = await client.query<{ locked: boolean }>(
      "SELECT pg_try_advisory_lock($1, hashtext($2)) AS locked",
      [lockClasses.supervisor, this.#options.name],
    );
    return rows[0]?.locked === true;
  }

  async #channel(client: Client): Promise<string> {
    const { rows } = await client.query<{ channel: string }>("SELECT concat('pg_conf_', hashtext($1)) AS channel", [
      this.#options.name,
    ]);
    return rows[0]?.channel ?? "";
  }

  /**
   * Releases the lock and notifies the standbys. The server sends the notification only when the statement has ended,
   * and by then the lock is free.
   */
  async #handOver(client: Client): Promise<void> {
    const statement = client.query(
      `SELECT pg_advisory_unlock($1, hashtext($2)), pg_notify(concat('pg_conf_', hashtext($2)), '')`,
      [lockClasses.supervisor, this.#options.name],
    );
    // If the statement fails, the end of the connection releases the lock.
    await awaitAnswer(statement, handOverTimeoutMs).catch(() => {});
  }
}

/** @throws PgTaskError CONNECTION_LOST if the server does not answer within `ms` milliseconds. */
async function awaitAnswer<T>(query: Promise<T>, ms: number): Promise<T> {
  const done = new AbortController();
  const timeout = sleep(ms, done.signal).then((elapsed) => {
    if (!elapsed) return query;
    query.catch(() => {});
    throw new PgTaskError("CONNECTION_LOST", `the server did not answer within ${ms} ms`);
  });
  try {
    return await Promise.race([query, timeout]);
  } finally {
    done.abort();
  }
}

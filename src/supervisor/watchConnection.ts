import { Backoff, sleep } from "../shared/backoff.js";
import { toReport, type ErrorReport } from "../shared/errors.js";
import type { SleepCheck, SleepingTable } from "../shared/ipc/sleepingTable.js";
import type { Log } from "../shared/log.js";
import { lockClasses } from "../shared/postgres/advisoryLocks.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import {
  connectClient,
  connectionLost,
  disconnect,
  isServerError,
  sqlState,
  type Client,
} from "../shared/postgres/client.js";
import { ConnectionWatchdog } from "../shared/postgres/connectionWatchdog.js";
import { identifier } from "../shared/postgres/quoting.js";
import { answerRollCall, isRollCall, isRollCallQuestion } from "../shared/postgres/rollCall.js";
import { lockNotAvailable } from "../shared/postgres/sqlStates.js";
import { lostClientSettings, type StartupSettings } from "../shared/postgres/startupOptions.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import { loginCheckMs, watchLogin } from "./loginWatch.js";

/** A table that somebody holds locked must not keep the others from being checked. */
const watchSettings: StartupSettings = {
  lock_timeout: "100ms",
  statement_timeout: "10s",
  row_security: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  jit: "off",
  ...lostClientSettings,
};

/** How long the server can be silent before the connection is probed, in ms. */
const quietMs = { answer: 150, rest: 4_500 };

/**
 * Between two checks of a sleeping table, in ms: the more tables there are, the rarer they are checked. Checks only find
 * tasks whose notification was lost.
 */
const checkTimes = {
  leastMs: 30_000,
  perTableMs: 300,
  mostMs: 5 * 60_000,
  lockedMs: 10_000,
  login: loginCheckMs,
};
/** The checks of tables that fell asleep together are spread over this part of the time between two checks. */
const checkJitter = 0.2;

/** How far the server's clock has to be set back for the managers to look at their schedules, in ms. */
const clockStepMs = 60_000;

/** Why a table is woken. `task`: it has something to do. `clock`: the server's clock was set back. */
export type WakeReason = "task" | "clock" | "lock lost" | "error";

export interface WatchedTable {
  readonly table: SleepingTable;
  /** The connection, and with it the lock, was lost: another process may have served the table. */
  lost(reason: ErrorReport): void;
  /** The table is watched again. */
  regained(): void;
  /** The server refuses the login that the table's manager will need. Null: it accepts it again. */
  refused(reason: ErrorReport | null): void;
  wake(reason: WakeReason): void;
}

interface Watched {
  readonly by: WatchedTable;
  /** Whether this connection has to hold the table's lock, because the manager has ended. */
  holdsLock: boolean;
  /** When the next planned task becomes due, as a value of performance.now(). */
  dueAt: number;
  timer: NodeJS.Timeout | undefined;
}

/**
 * Listens for the sleeping tables of one database, holds their locks, and knows when each of them has to be woken. Runs
 * no SQL of users, and starts no tasks: whatever has changed, the manager that is started then finds out.
 *
 *   connecting ──listens for all tables──▶ watching ──lost──▶ connecting, after a pause
 *                                             └──no table left──▶ closed
 */
export class WatchConnection {
  readonly #target: ConnectionTarget;
  readonly #log: Log;
  readonly #closed: () => void;
  readonly #checkTimes: typeof checkTimes;
  readonly #tables = new Map<number, Watched>();
  readonly #byChannel = new Map<string, Watched>();
  readonly #ending = new AbortController();
  #retryNow = new AbortController();
  #client: Client | null = null;
  #watchdog: ConnectionWatchdog | null = null;
  /** Resolves when the first attempt to connect has ended. */
  readonly #attempted: Promise<void>;
  /** The server's clock minus this process's, in ms. Null until it was read on this connection. */
  #clockOffsetMs: number | null = null;

  /** @param closed called when no table is left, and the connection is closed */
  constructor(
    target: ConnectionTarget,
    options: { readonly log: Log; readonly closed: () => void; readonly checkTimes?: typeof checkTimes },
  ) {
    this.#target = target;
    this.#checkTimes = options.checkTimes ?? checkTimes;
    this.#log = options.log;
    this.#closed = options.closed;
    this.#attempted = new Promise((resolve) => void this.#keepConnected(resolve));
  }

  /** Begins to listen for a table whose manager has its lock. Returns false if that is not possible at present. */
  async add(by: WatchedTable): Promise<boolean> {
    const { table } = by;
    if (this.#tables.has(table.oid)) return false;
    const watched: Watched = { by, holdsLock: false, dueAt: performance.now() + table.wakeMs, timer: undefined };
    this.#tables.set(table.oid, watched);
    for (const channel of [...table.channels, table.rollCall]) this.#byChannel.set(channel, watched);
    await this.#attempted;
    const client = this.#client;
    const isKnown = (): boolean => this.#tables.get(table.oid) === watched;
    const isListening = client !== null && isKnown() && (await this.#listen(client, [watched]));
    if (isListening && isKnown()) return true;
    this.remove(by);
    return false;
  }

  /**
   * Takes the lock of a table that has no manager, if it was not taken before. Returns false if another manager has it or
   * the server has no room for it, and null if the connection was lost.
   *
   * @param wakeMs time until there is something to do, in ms
   */
  async lock({ table }: WatchedTable, wakeMs = Infinity): Promise<boolean | null> {
    const watched = this.#tables.get(table.oid);
    const client = this.#client;
    if (watched === undefined || client === null) return null;
    try {
      if (!watched.holdsLock) {
        watched.holdsLock = true;
        if (!(await tryLock(client, table))) return false;
      }
    } catch (error) {
      return isServerError(error) ? false : null;
    }
    watched.dueAt = Math.min(watched.dueAt, performance.now() + wakeMs);
    this.#setTimer(watched);
    return true;
  }

  /** Stops watching a table. The lock is released, so that its manager can take it. */
  remove({ table }: WatchedTable): void {
    const watched = this.#tables.get(table.oid);
    if (watched === undefined || watched.by.table !== table) return;
    clearTimeout(watched.timer);
    this.#tables.delete(table.oid);
    const channels = [...table.channels, table.rollCall];
    for (const channel of channels) this.#byChannel.delete(channel);
    if (this.#tables.size === 0) {
      this.#ending.abort();
      this.#closed();
    } else if (this.#client !== null) {
      const statements = channels.map((channel) => `UNLISTEN ${identifier(channel)}`);
      if (watched.holdsLock) statements.unshift(`SELECT pg_catalog.pg_advisory_unlock(${lockKeys(table)})`);
      // If it fails, the connection has ended, and the lock with it.
      this.#client.query(statements.join("; ")).catch(() => {});
    }
  }

  retryNow(): void {
    this.#retryNow.abort();
  }

  probe(): void {
    this.#watchdog?.probeNow();
  }

  async #keepConnected(attempted: () => void): Promise<void> {
    const backoff = new Backoff({ firstMs: 100, maxMs: 10_000 });
    const { signal } = this.#ending;
    /** A reason is logged once, not again at each attempt that fails for the same reason. */
    let lastLogged: string | null = null;
    while (!signal.aborted) {
      this.#retryNow = new AbortController();
      try {
        await this.#watch(() => {
          attempted();
          backoff.reset();
          lastLogged = null;
        });
      } catch (error) {
        if (signal.aborted) break;
        attempted();
        const reason = toReport(error);
        for (const { by } of this.#tables.values()) by.lost(reason);
        const pauseMs = backoff.next();
        if (lastLogged !== reason.message)
          this.#log.warn(
            { database: this.#target.database, tables: this.#tables.size, reason: reason.message, pauseMs },
            "connection of sleeping tables lost, retrying",
          );
        lastLogged = reason.message;
        await sleep(pauseMs, AbortSignal.any([signal, this.#retryNow.signal]));
      }
    }
    attempted();
  }

  /** Connects, and watches until the connection is lost or no table is left. */
  async #watch(connected: () => void): Promise<void> {
    const { signal } = this.#ending;
    const client = await connectClient(this.#target, {
      applicationName: applicationNames.sleepWatch,
      settings: watchSettings,
      pipeline: true,
      writable: true,
      signal,
    });
    const lost = new Promise<void>((resolve) => client.once("end", resolve));
    const ended = new AbortController();
    const aborted = new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener("abort", () => resolve(), { once: true });
    });
    this.#watchdog = new ConnectionWatchdog(client, {
      name: applicationNames.managerWatch,
      quietMs: quietMs.answer,
      restMs: () => quietMs.rest,
    });
    try {
      client.on("notification", ({ channel, payload }) => this.#receive(client, channel, payload));
      this.#clockOffsetMs = null;
      const known = [...this.#tables.values()];
      if (known.length > 0 && !(await this.#listen(client, known))) throw connectionLost(client, "the watching");
      this.#client = client;
      connected();
      for (const watched of known) void this.#resume(client, watched);
      void watchLogin(this.#target, {
        times: this.#checkTimes.login,
        signal: ended.signal,
        log: this.#log,
        changed: (refusal) => {
          for (const { by } of this.#tables.values()) by.refused(refusal);
        },
      });
      await Promise.race([lost, aborted]);
      if (!signal.aborted) throw connectionLost(client, "the watching");
    } finally {
      ended.abort();
      this.#client = null;
      this.#watchdog.stop();
      this.#watchdog = null;
      await disconnect(client);
    }
  }

  /** After the connection was lost, tables that have a lock here need it again, and tasks may have been missed. */
  async #resume(client: Client, watched: Watched): Promise<void> {
    if (!watched.holdsLock) return;
    try {
      if (await tryLock(client, watched.by.table)) {
        watched.by.regained();
        await this.#check(client, watched);
      } else watched.by.wake("lock lost");
    } catch {
      // The connection was lost again, or the lock cannot be taken: the manager's attempt tells the reason.
      if (this.#client === client) watched.by.wake("error");
    }
  }

  async #listen(client: Client, tables: readonly Watched[]): Promise<boolean> {
    const channels = tables.flatMap(({ by: { table } }) => [...table.channels, table.rollCall]);
    try {
      await client.query(channels.map((channel) => `LISTEN ${identifier(channel)}`).join("; "));
      return true;
    } catch (error) {
      this.#log.debug({ reason: toReport(error).message }, "cannot listen for sleeping tables");
      return false;
    }
  }

  #receive(client: Client, channel: string, payload: string | undefined): void {
    const watched = this.#byChannel.get(channel);
    if (watched === undefined) return;
    if (isRollCallQuestion(payload)) answerRollCall(client, channel);
    else if (!isRollCall(payload)) watched.by.wake("task");
  }

  #setTimer(watched: Watched, maxMs = this.#checkMs * (1 - checkJitter * Math.random())): void {
    clearTimeout(watched.timer);
    const ms = Math.max(0, Math.min(watched.dueAt - performance.now(), maxMs));
    watched.timer = setTimeout(() => {
      const client = this.#client;
      if (performance.now() >= watched.dueAt) watched.by.wake("task");
      else if (client === null) this.#setTimer(watched);
      else void this.#check(client, watched);
    }, ms);
  }

  get #checkMs(): number {
    const { leastMs, perTableMs, mostMs } = this.#checkTimes;
    return Math.min(Math.max(leastMs, this.#tables.size * perTableMs), mostMs);
  }

  async #check(client: Client, watched: Watched): Promise<void> {
    const { by } = watched;
    try {
      const { rows } = await client.query<SleepCheck>(by.table.checkSql);
      if (this.#tables.get(by.table.oid) !== watched) return;
      const [found] = rows;
      if (found !== undefined && this.#hasClockStepped(found)) {
        for (const each of this.#tables.values()) each.by.wake("clock");
        return;
      }
      if (found === undefined || found.due) {
        by.wake("task");
        return;
      }
      watched.dueAt = Math.min(performance.now() + (found.ms ?? Infinity), watched.dueAt);
      this.#setTimer(watched);
    } catch (error) {
      if (this.#tables.get(by.table.oid) !== watched) return;
      // If the connection was lost, the next one checks the table.
      if (sqlState(error) === lockNotAvailable) this.#setTimer(watched, this.#checkTimes.lockedMs);
      else if (this.#client === client && sqlState(error) !== null) by.wake("error");
    }
  }

  #hasClockStepped({ clock_ms: clockMs }: SleepCheck): boolean {
    const offsetMs = clockMs - performance.now();
    const before = this.#clockOffsetMs;
    this.#clockOffsetMs = offsetMs;
    return before !== null && before - offsetMs > clockStepMs;
  }
}

const lockKeys = ({ oid }: SleepingTable): string => `${lockClasses.manager}, ${oid | 0}`;

async function tryLock(client: Client, table: SleepingTable): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>(
    `SELECT pg_catalog.pg_try_advisory_lock(${lockKeys(table)}) AS locked`,
  );
  return rows[0]?.locked === true;
}

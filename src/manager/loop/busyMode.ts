import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import type { Client } from "../../shared/postgres/client.js";
import { countWaitingNotifiers, readWriters } from "./writers.sql.js";
import { tryLock, unlock } from "./tableLock.js";
import {
  busyPollMs,
  busyQuietMs,
  floodMs,
  maxNotifications,
  maxSettlePollMs,
  notifyQueue,
  pollGrowth,
  saturatedPollMs,
  soonAgainMs,
} from "../model/tuning.js";

const defaultLimits = { notifications: maxNotifications, waiting: notifyQueue.waiting, quietMs: busyQuietMs };

export type BusyModeLimits = typeof defaultLimits;

/**
 * Decides whether writers send notifications, or the manager is in busy mode and polls the table. NOTIFY makes the
 * transactions that use it commit one after another. Therefore the manager takes the lock of busy mode after many
 * notifications, and sooner if it sees that writers wait for each other. While it holds the lock, writers do not notify.
 *
 *   settling ──no silent writers──▶ last check ──▶ notified ──many notifications──▶ busy
 *     ▲  └───────────────────────────many notifications──────────────────────────▶ │
 *     └────────────────────────quiet: releases the lock────────────────────────────┘
 *
 * No wake-up is lost. A writer that saw busy mode (a silent writer) commits without notifying. It locked the table
 * before that, and keeps the lock until its rows are visible. After the manager has released its own lock, it therefore
 * lists the silent writers, polls until they have ended, and checks the table once more. A new manager begins in the
 * state `settling`, because its predecessor may have left silent writers.
 */
export class BusyMode {
  readonly #client: Client;
  readonly #tableOid: number;
  #state: "settling" | "last check" | "notified" | "busy" = "settling";
  /** Transactions that may commit without notifying. Null before they have been listed. */
  #silentWriters: ReadonlySet<string> | null = null;
  readonly #receivedAt: number[] = [];
  /** How many notifications have arrived since the manager last looked whether writers wait. */
  #newNotifications = 0;
  /** The time of the next such look at the earliest. */
  #nextLookAt = 0;
  #didWait = false;
  #pollMs = 0;
  #foundWorkAt = 0;
  readonly #limits: BusyModeLimits;
  #quietMs: number;
  #busyEndedAt = -Infinity;

  /** @param isWoken whether the table was asleep: then all writers have notified since the last manager has checked it */
  constructor(client: Client, tableOid: number, limits = defaultLimits, isWoken = false) {
    if (isWoken) this.#state = "notified";
    this.#client = client;
    this.#tableOid = tableOid;
    this.#limits = limits;
    this.#quietMs = limits.quietMs.min;
  }

  receive(): void {
    this.#newNotifications++;
    this.#receivedAt.push(performance.now());
    if (this.#receivedAt.length > this.#limits.notifications) this.#receivedAt.shift();
  }

  /** Whether the manager is notified of every change from now on. */
  get isNotified(): boolean {
    return this.#state === "notified";
  }

  get pauseMs(): number {
    return this.isNotified ? Infinity : this.#pollMs;
  }

  /** Leaves busy mode, so that writers notify the next manager. */
  async stop(): Promise<void> {
    if (this.#state === "busy") await unlock(this.#client, lockClasses.busy, this.#tableOid);
    this.#state = "settling";
  }

  /**
   * Changes the state as needed. Returns whether the next cycle must start without a pause.
   *
   * @param cycle.found whether the cycle had something to do
   * @param cycle.full whether no more tasks can start
   * @param cycle.deferred whether part of the cycle was deferred
   */
  async afterCycle(cycle: { found: boolean; full: boolean; deferred: boolean }): Promise<boolean> {
    if (this.#state === "busy") return await this.#afterBusyCycle(cycle.found, cycle.full);
    if ((this.#isFlooded() || (await this.#doWritersWait())) && (await this.#beginBusy())) return false;
    if (this.#state === "settling") return await this.#settle();
    if (this.#state === "last check" && !cycle.deferred) this.#state = "notified";
    return false;
  }

  #isFlooded(): boolean {
    const [first = -Infinity] = this.#receivedAt;
    return this.#receivedAt.length === this.#limits.notifications && performance.now() - first < floodMs;
  }

  /** One look alone proves nothing: a few writers that commit at the same moment also wait. */
  async #doWritersWait(): Promise<boolean> {
    const { notifications, ms, restFactor } = notifyQueue;
    const now = performance.now();
    if (this.#newNotifications < notifications || now < this.#nextLookAt) return false;
    this.#newNotifications = 0;
    const isFrequent = now - (this.#receivedAt.at(-notifications) ?? -Infinity) < ms;
    const wait = isFrequent && (await countWaitingNotifiers(this.#client, this.#tableOid)) >= this.#limits.waiting;
    const stillWait = wait && this.#didWait;
    this.#didWait = wait;
    const end = performance.now();
    this.#nextLookAt = end + (end - now) * restFactor;
    return stillWait;
  }

  async #beginBusy(): Promise<boolean> {
    // If a writer is just testing the lock, nothing changes, and the next cycle tries again.
    if (!(await tryLock(this.#client, lockClasses.busy, this.#tableOid))) return false;
    const now = performance.now();
    const soon = now - this.#busyEndedAt < soonAgainMs;
    const { min, max } = this.#limits.quietMs;
    this.#quietMs = soon ? Math.min(this.#quietMs * 2, max) : min;
    this.#state = "busy";
    this.#receivedAt.length = 0;
    this.#didWait = false;
    this.#foundWorkAt = now;
    this.#pollMs = busyPollMs.min;
    return true;
  }

  async #afterBusyCycle(found: boolean, full: boolean): Promise<boolean> {
    const now = performance.now();
    if (found || full) {
      this.#foundWorkAt = now;
      this.#pollMs = full ? saturatedPollMs : busyPollMs.min;
      return false;
    }
    if (now - this.#foundWorkAt < this.#quietMs) {
      this.#pollMs = Math.min(this.#pollMs * pollGrowth, busyPollMs.max);
      return false;
    }
    await unlock(this.#client, lockClasses.busy, this.#tableOid);
    this.#busyEndedAt = now;
    this.#state = "settling";
    this.#silentWriters = null;
    this.#pollMs = busyPollMs.min;
    return await this.#settle();
  }

  /**
   * Ends settling once no silent writer is left; then the table has to be checked once more, at once. A transaction that
   * was prepared in the meantime is listed under another id, so every prepared one is treated as a silent writer.
   */
  async #settle(): Promise<boolean> {
    const known = this.#silentWriters;
    const silent = (await readWriters(this.#client, this.#tableOid)).filter(
      ({ transaction, prepared }) => prepared || known === null || known.has(transaction),
    );
    this.#silentWriters = new Set(silent.map(({ transaction }) => transaction));
    this.#pollMs = Math.min(this.#pollMs * pollGrowth + 1, maxSettlePollMs);
    if (silent.length > 0) return false;
    this.#state = "last check";
    return true;
  }
}

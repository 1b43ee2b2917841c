import type { Client } from "../../shared/postgres/client.js";
import type { SettledTable, SleepCheck, SleepingTable } from "../../shared/ipc/sleepingTable.js";
import { longestTimerMs } from "../../shared/backoff.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { nextPlanQuery } from "../groups/plannedTasks.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { maxSleepMs, minThreadSleepMs, outboxPauseMs, sleepAtOnceCheckMs } from "../model/tuning.js";
import type { ManagerComponents } from "./components.js";

interface DeepSleepOptions {
  /** What the supervisor has to listen to while the table has no manager. */
  readonly watched: Pick<SleepingTable, "oid" | "channels" | "rollCall">;
  /** Returns the time until the manager has something to do besides starting tasks, in ms. */
  readonly upkeepMs: () => number;
  /** Returns whether something waits for locked or rejected rows, or parameters are being applied. */
  readonly isWaiting: () => boolean;
}

/**
 * Deep sleep begins after `idle` checks that have found nothing to do. The manager then keeps no executor threads, and
 * ends if the supervisor can watch its table, until there is something to do. No wake-up is lost: the manager ends only
 * after a check that it has begun when the supervisor was listening, and the next one checks the whole table.
 *
 *   awake ──`idle` empty checks──▶ asleep ──nothing planned soon──▶ offered ──supervisor listens──▶ accepted
 *     ▲                              │                                │                               │   │
 *     └──────something to do─────────┴────────────withdrawn───────────┴───────────────────────────────┘   │
 *                                                                      ended ◀──a check finds nothing─────┘
 */
export class DeepSleep {
  readonly #components: ManagerComponents;
  readonly #options: DeepSleepOptions;
  #state: "awake" | "asleep" | "offered" | "accepted" = "awake";
  /** How many checks in a row have found nothing. */
  #emptyChecks = 0;
  /** Whether the first check that finds nothing is enough. */
  #isAtOnce: boolean;
  #nextOfferAt = 0;

  constructor(components: ManagerComponents, options: DeepSleepOptions) {
    this.#components = components;
    this.#options = options;
    const { sleepsAtOnce, staysBriefly } = components.circumstances;
    this.#isAtOnce = sleepsAtOnce === true || staysBriefly === true;
  }

  get isAsleep(): boolean {
    return this.#state !== "awake";
  }

  get isAccepted(): boolean {
    return this.#state === "accepted";
  }

  /** Time between two checks while nothing is to be done, in ms. */
  get checkPauseMs(): number {
    if (this.isAsleep) return Math.max(1, Math.min(maxSleepMs, this.#components.sessionAccess.pauseMs, this.#offerMs));
    const { sleepMs } = this.#components.knownSettings;
    return this.#isAtOnce ? Math.min(sleepAtOnceCheckMs, sleepMs) : sleepMs;
  }

  stayAwake(): void {
    this.#withdraw();
    this.#state = "awake";
    this.#emptyChecks = 0;
    this.#nextOfferAt = 0;
  }

  /** The table is in use: from now on, one check that finds nothing is not enough. */
  expectTasks(): void {
    this.#isAtOnce = this.#components.circumstances.staysBriefly === true;
  }

  /** If nothing else keeps the manager, pruning must not. */
  checked(isIdle: boolean): void {
    if (isIdle && this.#isAtOnce) this.#components.pruner.hurry();
  }

  /** Called after a check that has found nothing to do. Throws if the connection is lost. */
  async endEmptyCheck(client: Client): Promise<void> {
    const { knownSettings, poolScaler, sessionAccess } = this.#components;
    this.#emptyChecks += 1;
    if (this.isAsleep) sessionAccess.check();
    else if (this.#isAtOnce || this.#emptyChecks >= knownSettings.idle) {
      this.#state = "asleep";
      await poolScaler.closeAll();
    }
    if (this.isAsleep && performance.now() >= this.#nextOfferAt) await this.#offer(client);
  }

  /** The supervisor listens. */
  accept(): void {
    if (this.#state === "offered") this.#state = "accepted";
  }

  /**
   * Ends the manager if there is still nothing to do, and withdraws the offer otherwise.
   *
   * @param isIdle whether the last check, which was begun after the offer had been accepted, has found nothing to do
   */
  async endManager(client: Client, isIdle: boolean): Promise<boolean> {
    const mayEnd = isIdle && (await this.#readWakeMs(client)) !== null;
    if (!mayEnd || this.#state !== "accepted") {
      this.#withdraw();
      return false;
    }
    const { groups, zoneChanges } = this.#components;
    // From here on, the next manager starts tasks.
    this.#components.isDraining = true;
    this.#components.fellAsleep({
      quietMs: groups.gaps.allQuietMs,
      zoneCheckMs: zoneChanges.pauseMs,
      settled: this.#settled,
    });
    return true;
  }

  /** Time until a check may be followed by an offer, if that is before the next check anyway. */
  get #offerMs(): number {
    const ms = this.#nextOfferAt - performance.now();
    return this.#state === "asleep" && ms < minThreadSleepMs ? ms : Infinity;
  }

  async #offer(client: Client): Promise<void> {
    const upkeepMs = this.#options.upkeepMs();
    // What is to be done soon is often done once, when the table has just become quiet.
    const soonMs = upkeepMs < minThreadSleepMs ? upkeepMs : Infinity;
    const sendingMs = this.#components.webhooks.isSending ? outboxPauseMs.failed : Infinity;
    this.#nextOfferAt = performance.now() + Math.min(maxSleepMs, soonMs, sendingMs);
    const wakeMs = await this.#readWakeMs(client);
    if (wakeMs === null) return;
    this.#state = "offered";
    const table = { ...this.#options.watched, checkSql: sleepCheckSql(this.#components.table), wakeMs };
    this.#components.send({ type: "sleepOffered", table });
  }

  #withdraw(): void {
    if (this.#state !== "offered" && this.#state !== "accepted") return;
    this.#state = "asleep";
    this.#components.send({ type: "sleepWithdrawn" });
  }

  /** Null if the thread has to stay. */
  async #readWakeMs(client: Client): Promise<number | null> {
    const upkeepMs = this.#options.upkeepMs();
    if (this.#hasWork || upkeepMs < minThreadSleepMs) return null;
    try {
      const { rows } = await client.query<SleepCheck & { readonly partitioned: boolean }>(
        `SELECT c.*, (SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = ${this.#options.watched.oid}) AS partitioned
         FROM (${sleepCheckSql(this.#components.table)}) AS c`,
      );
      const [found] = rows;
      // New partitions are found only by looking for them.
      if (found === undefined || found.due || found.partitioned) return null;
      const wakeMs = Math.min(found.ms ?? Infinity, upkeepMs);
      return wakeMs < minThreadSleepMs ? null : Math.min(wakeMs, longestTimerMs);
    } catch (error) {
      if (isTransient(error)) return null;
      throw error;
    }
  }

  get #settled(): SettledTable | null {
    const { dependencies, entry, owed, server, table, turns } = this.#components;
    if (entry.users || !table.hasKeys || dependencies.hasAny || turns.hasAny || !owed.isSettled) return null;
    const { oid } = this.#options.watched;
    return { oid, stateType: table.stateType, serverStart: server?.start ?? null, wasServed: true };
  }

  get #hasWork(): boolean {
    const {
      groups,
      isDraining,
      orphans,
      pendingResults,
      poolScaler,
      remoteCapacity,
      sessionAccess,
      sessions,
      webhooks,
    } = this.#components;
    const isAtWork = groups.totalRunning > 0 || sessions.size > 0 || orphans.size > 0 || pendingResults.size > 0;
    const isRefused = poolScaler.pauseMs !== null || sessionAccess.isRefused || remoteCapacity.hasWaiting;
    return (
      isDraining || isAtWork || isRefused || groups.gaps.hasWaits || webhooks.isSending || this.#options.isWaiting()
    );
  }
}

/** SQL of a query for a `SleepCheck`. A row that is due counts also if its group is paused. */
export const sleepCheckSql = (table: TaskTable): string => `
SELECT EXISTS (SELECT FROM ${table.qualified} WHERE ready) OR p.must_look_up AS due, p.ms, p.clock_ms
FROM (${nextPlanQuery(table, "'{}'::bigint[]")}) AS p`;

import type { Client } from "../../shared/postgres/client.js";
import type { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import type { OtherManagers } from "../recovery/otherManagers.js";
import type { SleepingTable } from "../../shared/ipc/sleepingTable.js";
import { checkRunsMs, copyCheckMs } from "../model/tuning.js";
import type { BusyMode } from "./busyMode.js";
import type { ManagerComponents } from "./components.js";
import { DeepSleep } from "./deepSleep.js";
import type { HomeGuard } from "./homeGuard.js";
import { OrphanScan } from "./orphanScan.js";
import { falseIfTransient, Upkeep } from "./upkeep.js";
import type { CycleOutcome, CycleRequest, WorkCycle } from "./workCycle.js";

export interface ManagerLoopOptions {
  readonly workCycle: WorkCycle;
  readonly busyMode: BusyMode;
  readonly homeGuard: Pick<HomeGuard, "isHeld" | "mayStart">;
  readonly otherManagers: Pick<OtherManagers, "watchOwners">;
  readonly watchdog: Pick<ConnectionWatchdog, "expectAnswer">;
  /** Releases the table lock, so that another manager can serve the table. */
  readonly unlock: () => Promise<void>;
  readonly cycled: () => void;
  /** What the supervisor has to listen to while the table has no manager. */
  readonly watched: Pick<SleepingTable, "oid" | "channels" | "rollCall">;
  /** Whether the table was asleep: then nobody can have left tasks running. */
  readonly isWoken: boolean;
  /** Whether the manager that fell asleep has left nothing to do. */
  readonly isSettled: boolean;
  /** Whether changed parameters are being applied. */
  readonly isReloading: () => boolean;
}

/**
 * The manager at work, while it holds the table's lock. It runs one cycle after another, each when there is something to
 * do, until the manager ends or falls into deep sleep.
 *
 * A draining manager hands the table over to the next manager as soon as it claims no more tasks. From then on it only
 * writes the results of its sessions, whose tasks count as running for the next manager. Results of closed sessions are
 * written before the handover, because the next manager would take those tasks for orphans.
 *
 * The manager of a copy starts nothing until the copy is accepted. It writes the results of runs that had begun before
 * the rows of another table were loaded.
 *
 *     held ──table is at home──▶ cycles ⇄ deep sleep
 *      ▲                          │ │
 *      └─rows of a copy are loaded┘ │
 *                                   └─drain─▶ draining ──results of closed sessions are written──▶ handed over ──finished──▶ ended
 */
export class ManagerLoop {
  readonly #client: Client;
  readonly #components: ManagerComponents;
  readonly #options: ManagerLoopOptions;
  readonly #upkeep: Upkeep;
  readonly #deepSleep: DeepSleep;
  readonly #orphanScan: OrphanScan;
  /** Whether the supervisor knows that the table is served. */
  #hasBegun = false;
  /** Whether the supervisor knows that no more tasks are claimed. */
  #hasReleased = false;
  #hasHandedOver = false;
  /** Whether the table was changed since the last cycle, so rows of running tasks may have changed. */
  #changed = true;
  #overdueCycles = 0;
  #retriedAt = performance.now();
  #cycleEndedAt = performance.now();
  #runsCheckedAt = 0;

  constructor(client: Client, components: ManagerComponents, options: ManagerLoopOptions) {
    this.#client = client;
    this.#components = components;
    this.#options = options;
    this.#upkeep = new Upkeep(components);
    this.#deepSleep = new DeepSleep(components, {
      watched: options.watched,
      upkeepMs: () => this.#upkeep.pauseMs,
      isWaiting: () => options.isReloading() || options.workCycle.isWaiting || options.workCycle.retryMs < Infinity,
    });
    this.#orphanScan = new OrphanScan(components, {
      isWoken: options.isWoken,
      checked: () => options.otherManagers.watchOwners(),
      rescued: () => {
        this.#changed = true;
        this.#stayAwake();
      },
    });
  }

  receiveNotification(): void {
    this.#options.busyMode.receive();
    this.#deepSleep.expectTasks();
    this.wake();
  }

  /** Starts a cycle that checks everything. */
  wake(): void {
    this.#changed = true;
    this.#stayAwake();
    this.#components.wakeSignal.notify();
  }

  /** The supervisor watches the table from now on. What it has missed so far is found by one more check. */
  acceptSleep(): void {
    this.#deepSleep.accept();
    this.#changed = true;
    this.#components.wakeSignal.notify();
  }

  get state(): Readonly<Record<string, number | boolean | null>> {
    const { workCycle, busyMode } = this.#options;
    const cycleMs = Math.round(performance.now() - this.#cycleEndedAt);
    return { asleep: this.isAsleep, notified: busyMode.isNotified, cycleMs, waiting: workCycle.isWaiting };
  }

  get isAsleep(): boolean {
    return this.#deepSleep.isAsleep;
  }

  /** Whether a claim may be under way. False once a drain has ended the cycle that was running. */
  get mayClaim(): boolean {
    return !this.#hasReleased;
  }

  async run(isFinished: () => boolean): Promise<void> {
    const { pendingResults, remoteCapacity } = this.#components;
    const { homeGuard, workCycle } = this.#options;
    this.#upkeep.restart(this.#options.isSettled);
    if (this.#components.isDraining) pendingResults.requeueDeferred(Infinity);
    // On a new connection it is not known yet which rows are locked.
    await workCycle.retryLocked(this.#client);
    while (!isFinished()) {
      await remoteCapacity.answerRequests(this.#client);
      if (this.#components.isDraining) {
        await this.#drainOnce();
      } else if (!(await homeGuard.mayStart())) {
        this.#hasBegun &&= !homeGuard.isHeld;
        await this.#writeHeld();
      } else if (await this.#orphanScan.run(this.#client)) {
        await this.#cycle();
      } else {
        this.#begin();
        await this.#rest(Infinity);
      }
    }
  }

  /** Reports that the table is served, once, and again after it was a copy. */
  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    const { log, send, table, knownSettings } = this.#components;
    log[this.#options.isWoken ? "debug" : "info"](
      { table: table.logName, sleepMs: knownSettings.sleepMs },
      "serving table",
    );
    send({ type: "ready" });
  }

  async #cycle(): Promise<void> {
    const { poolScaler, pruner, runTimes, statistics, wakeSignal } = this.#components;
    const { busyMode, cycled, watchdog, workCycle } = this.#options;
    const since = performance.now();
    // The server is about to be asked after a long silence.
    if (this.isAsleep) watchdog.expectAnswer();
    const mayEnd = this.#deepSleep.isAccepted;
    const outcome = await workCycle.run(this.#client, this.#request());
    this.#cycleEndedAt = performance.now();
    this.#begin();
    cycled();
    statistics.cycleEnded(outcome, since);
    if (outcome.claimed > 0) runTimes.addCycle(performance.now() - since);
    const hasFailed = await this.#grow(outcome.more);
    if (outcome.more === 0) poolScaler.shrink();
    if (outcome.claimed > 0) {
      this.#deepSleep.expectTasks();
      this.#stayAwake();
    }
    // A task may end long after it was claimed, when nothing else (`#stayAwake`) notifies the pruner.
    if (outcome.ended > 0 || outcome.expired > 0) pruner.touch();
    const { again, mayHavePlanned } = await this.#upkeep.step(this.#client, mayEnd);
    this.#changed ||= mayHavePlanned;
    const mustCheck = await this.#updateBusyMode(outcome);
    const isIdle = busyMode.isNotified && this.#isIdle(outcome);
    this.#deepSleep.checked(isIdle);
    if (mayEnd && (await this.#deepSleep.endManager(this.#client, isIdle))) return;
    const isBusy = again || hasFailed || mustCheck || outcome.again || (await wakeSignal.wait(this.#pauseMs(outcome)));
    if (!isBusy && isIdle) await this.#deepSleep.endEmptyCheck(this.#client);
    await this.#retryLocked();
  }

  /** Returns whether tasks have failed that nobody can run, so that others may be due behind them. */
  async #grow(more: number): Promise<boolean> {
    const { dependencies, isDraining, lanes, poolScaler } = this.#components;
    if (isDraining) return false;
    if (!lanes.isUsed) {
      await poolScaler.grow(this.#client, more);
      return false;
    }
    let hasFailed = false;
    await falseIfTransient(async () => {
      hasFailed = await lanes.grow(this.#client);
      return true;
    });
    if (hasFailed) dependencies.tableChanged();
    this.#changed ||= hasFailed;
    return hasFailed;
  }

  /** Writes the results of runs that had begun before the table became a copy. Then, all rows may have changed. */
  async #writeHeld(): Promise<void> {
    this.#changed = true;
    this.#orphanScan.restart();
    this.#stayAwake();
    const more = await this.#options.workCycle.writeOnly(this.#client);
    this.#options.cycled();
    await this.#retryLocked();
    if (!more) await this.#rest(copyCheckMs);
  }

  async #drainOnce(): Promise<void> {
    await this.#handOver();
    if (!this.#hasReleased) this.#components.send({ type: "claimingStopped" });
    this.#hasReleased = true;
    const { workCycle } = this.#options;
    const more = (await workCycle.writeOnly(this.#client)) || (await this.#upkeep.stepDependencies(this.#client));
    this.#options.cycled();
    await this.#retryLocked();
    await this.#handOver();
    if (!more) await this.#rest(checkRunsMs);
  }

  async #rest(maxMs: number): Promise<void> {
    await this.#components.wakeSignal.wait(Math.min(maxMs, this.#components.knownSettings.sleepMs));
  }

  /**
   * Lets another manager serve the table, once. It would rescue a task whose session is closed and whose result is not in
   * its row, so such results are written first. Tasks with a gap start first, because the next manager counts the gaps
   * from the handover.
   */
  async #handOver(): Promise<void> {
    const { groups, pendingResults, sessions } = this.#components;
    if (this.#hasHandedOver || groups.hasStarting) return;
    for (const owner of pendingResults.unwrittenOwners) if (!sessions.isOpen(owner)) return;
    await this.#options.busyMode.stop();
    await this.#options.unlock();
    this.#hasHandedOver = true;
  }

  /**
   * Retries the work that waits for locked rows, every `sleep` ms, also under load, when the loop does not pause.
   * Locked due tasks are rechecked sooner.
   */
  async #retryLocked(): Promise<void> {
    const { workCycle } = this.#options;
    if (!workCycle.isWaiting && workCycle.retryMs > 0) return;
    if (performance.now() - this.#retriedAt >= this.#components.knownSettings.sleepMs) {
      this.#retriedAt = performance.now();
      await workCycle.retryLocked(this.#client);
    } else if (workCycle.recheckMs === 0) {
      await workCycle.recheckLocked(this.#client);
    }
  }

  #stayAwake(): void {
    this.#components.pruner.touch();
    this.#deepSleep.stayAwake();
  }

  #request(): CycleRequest {
    const { isNotified } = this.#options.busyMode;
    const now = performance.now();
    const notified = this.#changed;
    const checkRuns = notified || (!isNotified && now - this.#runsCheckedAt >= checkRunsMs);
    this.#changed = false;
    if (checkRuns) this.#runsCheckedAt = now;
    // Another manager that hands the table over may still write results, and does not notify this one.
    return { checkRuns, notified, polls: !isNotified || this.#components.orphans.size > 0 };
  }

  /** Returns whether the next cycle has to start at once and check everything. */
  async #updateBusyMode({ claimed, more, again, deferred }: CycleOutcome): Promise<boolean> {
    const { groups, isDraining, maxRuns, poolScaler, sessions } = this.#components;
    const areSessionsFull = sessions.size > 0 && sessions.busy === sessions.size && poolScaler.lookAhead === 0;
    const full = isDraining || groups.totalRunning >= maxRuns || areSessionsFull;
    const cycle = { found: claimed > 0 || more > 0 || again, full, deferred };
    if (!(await falseIfTransient(() => this.#options.busyMode.afterCycle(cycle)))) return false;
    this.#changed = true;
    this.#stayAwake();
    return true;
  }

  #pauseMs({ nearestMs, gapMs }: CycleOutcome): number {
    const { knownSettings, lanes, remoteCapacity, orphans, poolScaler } = this.#components;
    const { busyMode, workCycle } = this.#options;
    // If a planned time stays in the past, the row of its task is locked, and later planned times are hidden behind it.
    // Another cycle at once would not help, but a cycle is needed before long.
    this.#overdueCycles = nearestMs === 0 ? this.#overdueCycles + 1 : 0;
    const isOverdue = this.#overdueCycles > 1;
    const { sleepMs, resetMs } = knownSettings;
    return Math.ceil(
      Math.min(
        this.#deepSleep.checkPauseMs,
        isOverdue || workCycle.isWaiting ? sleepMs : Infinity,
        isOverdue ? Infinity : (nearestMs ?? Infinity),
        gapMs,
        orphans.pauseMs,
        Math.max(workCycle.retryMs, sleepMs),
        Math.max(workCycle.recheckMs, 1),
        poolScaler.pauseMs ?? Infinity,
        lanes.pauseMs,
        remoteCapacity.pauseMs,
        busyMode.pauseMs,
        this.#upkeep.pauseMs,
        resetMs,
      ),
    );
  }

  #isIdle({ claimed, more, again, deferred }: CycleOutcome): boolean {
    const { remoteCapacity, groups, turns } = this.#components;
    if (this.#options.workCycle.isWaiting || remoteCapacity.hasWaiting || turns.hasAny) return false;
    return !deferred && claimed === 0 && more === 0 && !again && groups.totalRunning === 0;
  }
}

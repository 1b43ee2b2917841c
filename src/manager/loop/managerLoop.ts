import type { Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { ManagerComponents } from "./components.js";
import type { OwnedRow } from "../recovery/rescue.sql.js";
import type { ManagerSettings } from "../model/settings.js";
import { DeepSleep } from "./deepSleep.js";
import { noStarts } from "../sessions/startLimits.js";
import type { CycleOutcome, CycleRequest, WorkCycle } from "./workCycle.js";
import type { OtherManagers } from "../recovery/otherManagers.js";
import type { BusyMode } from "./busyMode.js";
import type { HomeGuard } from "./homeGuard.js";
import type { SessionReserve } from "../sessions/sessionReserve.js";
import { checkRunsMs, copyCheckMs, maxSleepMs } from "../model/tuning.js";

export type ManagerLoopOptions = Pick<
  ManagerComponents,
  | "wakeSignal"
  | "groups"
  | "sessions"
  | "pendingResults"
  | "orphans"
  | "settingsAge"
  | "loginCheck"
  | "poolScaler"
  | "remoteCapacity"
  | "pruner"
  | "zoneChanges"
  | "clockSteps"
  | "owed"
  | "dependencies"
  | "ledgers"
  | "statistics"
  | "runTimes"
> & {
  readonly workCycle: WorkCycle;
  readonly busyMode: BusyMode;
  readonly homeGuard: Pick<HomeGuard, "isHeld" | "mayStart">;
  readonly reserve: Pick<SessionReserve, "starts" | "kept">;
  readonly otherManagers: Pick<OtherManagers, "watchOwners">;
};

/** The events that the loop reports to its manager. */
export interface ManagerLoopEvents {
  /**
   * Called once, and again after the table was a copy: after the first cycle that succeeds, or earlier if a transient
   * error (such as a lock on the table) makes the loop wait before its first cycle.
   */
  readonly began: () => void;
  /** Called before each cycle in deep sleep: the server is about to be asked after a long silence. */
  readonly asks: () => void;
  /** Called after each cycle. */
  readonly cycled: () => void;
  /**
   * Called once, to let another manager serve the table. This happens as soon as no more tasks are claimed and no
   * results of closed sessions have to be written.
   */
  readonly handOver: () => Promise<void>;
  /** Called once, when no more tasks are claimed. If the handover is possible at once, `handOver` is called first. */
  readonly released: () => void;
}

/**
 * The manager at work, from the moment it holds the table's lock until its connection ends or its work is finished. It
 * runs one cycle after another, each when there is something to do.
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
  #settings: ManagerSettings;
  readonly #components: ManagerLoopOptions;
  /** Whether tasks may be claimed. */
  #isAccepting = true;
  /** Whether `released` was called. */
  #hasReleased = false;
  /** Whether another manager can serve the table. */
  #hasHandedOver = false;
  /** Whether the table was changed since the last cycle, so rows of running tasks may have changed. */
  #changed = true;
  readonly #deepSleep = new DeepSleep();
  #overdueCycles = 0;
  #retriedAt = performance.now();
  #scannedAt = 0;
  #cycleEndedAt = performance.now();
  #runsCheckedAt = 0;

  constructor(client: Client, settings: ManagerSettings, components: ManagerLoopOptions) {
    this.#client = client;
    this.#settings = settings;
    this.#components = components;
  }

  /** Called when the server has notified the manager of a change of the table. */
  receiveNotification(): void {
    this.#components.busyMode.receive();
    this.wake();
  }

  /** Starts a cycle that checks everything. */
  wake(): void {
    this.#changed = true;
    this.#stayAwake();
    this.#components.wakeSignal.notify();
  }

  /** The state of the loop, for diagnostics. */
  get state(): Readonly<Record<string, number | boolean | null>> {
    const { workCycle, busyMode } = this.#components;
    const cycleMs = Math.round(performance.now() - this.#cycleEndedAt);
    return {
      asleep: this.isAsleep,
      notified: busyMode.isNotified,
      cycleMs,
      waiting: workCycle.isWaiting,
    };
  }

  /** Replaces the settings. They apply from the next cycle on. */
  reconfigure(settings: ManagerSettings): void {
    this.#settings = settings;
    this.wake();
  }

  /** Whether the manager is in deep sleep. */
  get isAsleep(): boolean {
    return this.#deepSleep.isAsleep;
  }

  /** Whether a claim may be under way. False once a drain has ended the cycle that was running. */
  get mayClaim(): boolean {
    return !this.#hasReleased;
  }

  /** Stops claiming tasks. Rejected rows are tried once more, but the manager does not wait for them. */
  drain(): void {
    this.#isAccepting = false;
    this.#components.pendingResults.requeueDeferred(Infinity);
    this.#components.wakeSignal.notify();
  }

  /** Runs cycles until `finished` returns true. */
  async run(finished: () => boolean, events: ManagerLoopEvents): Promise<void> {
    const { homeGuard, remoteCapacity, wakeSignal, workCycle } = this.#components;
    this.#components.dependencies.restart();
    this.#components.owed.restart();
    this.#components.clockSteps.restart();
    // On a new connection it is not known yet which rows are locked.
    await workCycle.retryLocked(this.#client);
    let hasBegun = false;
    const begin = (): void => {
      if (!hasBegun) events.began();
      hasBegun = true;
    };
    while (!finished()) {
      await remoteCapacity.answerRequests(this.#client);
      if (!this.#isAccepting) {
        await this.#drainOnce(events);
      } else if (!(await homeGuard.mayStart())) {
        hasBegun &&= !homeGuard.isHeld;
        await this.#writeHeld(events);
      } else if (await this.#rescueOrphans()) {
        await this.#cycle(begin, events);
      } else {
        begin();
        await wakeSignal.wait(this.#settings.sleepMs);
      }
    }
  }

  async #cycle(begin: () => void, events: ManagerLoopEvents): Promise<void> {
    const { ledgers, poolScaler, pruner, runTimes, statistics } = this.#components;
    const { wakeSignal, busyMode, workCycle } = this.#components;
    const since = performance.now();
    if (this.isAsleep) events.asks();
    const outcome = await workCycle.run(this.#client, this.#settings, this.#request());
    this.#cycleEndedAt = performance.now();
    begin();
    events.cycled();
    statistics.cycleEnded(outcome, since);
    if (outcome.claimed > 0) runTimes.addCycle(performance.now() - since);
    if (this.#isAccepting) await poolScaler.grow(this.#client, outcome.more);
    if (outcome.more === 0) poolScaler.shrink();
    if (outcome.claimed > 0) this.#stayAwake();
    // Finished rows must be pruned on time. A task may end long after it was claimed, when nothing else (`#stayAwake`)
    // notifies the pruner.
    if (outcome.ended > 0 || outcome.expired > 0) pruner.touch();
    await ledgers.rotate(this.#client);
    const canPruneMore = await this.#prune();
    const canReplanMore = await this.#replan();
    const canPlanMore = await this.#planOwed();
    const haveDependentsChanged = await this.#stepDependencies();
    const mustCheck = await this.#updateBusyMode(outcome);
    const isBusy =
      haveDependentsChanged ||
      mustCheck ||
      canPruneMore ||
      canReplanMore ||
      canPlanMore ||
      outcome.again ||
      (await wakeSignal.wait(this.#pauseMs(outcome)));
    const isEmptyCheck = !isBusy && busyMode.isNotified && this.#isIdle(outcome);
    if (isEmptyCheck) await this.#endEmptyCheck();
    await this.#retryLocked();
  }

  /** Writes the results of runs that had begun before the table became a copy. Then, all rows may have changed. */
  async #writeHeld({ cycled }: ManagerLoopEvents): Promise<void> {
    this.#changed = true;
    this.#scannedAt = 0;
    this.#stayAwake();
    const { wakeSignal, workCycle } = this.#components;
    const more = await workCycle.writeOnly(this.#client);
    cycled();
    await this.#retryLocked();
    if (!more) await wakeSignal.wait(Math.min(copyCheckMs, this.#settings.sleepMs));
  }

  /** Checks the login if the manager is in deep sleep. Otherwise, counts the empty check, and may begin deep sleep. */
  async #endEmptyCheck(): Promise<void> {
    const { loginCheck, poolScaler } = this.#components;
    if (this.isAsleep) loginCheck.begin();
    if (this.#deepSleep.countEmptyCheck(this.#settings.idle)) await poolScaler.closeAll();
  }

  async #drainOnce(events: ManagerLoopEvents): Promise<void> {
    const { wakeSignal, workCycle } = this.#components;
    await this.#handOver(events);
    if (!this.#hasReleased) events.released();
    this.#hasReleased = true;
    const more = (await workCycle.writeOnly(this.#client)) || (await this.#stepDependencies());
    events.cycled();
    await this.#retryLocked();
    await this.#handOver(events);
    if (!more) await wakeSignal.wait(Math.min(checkRunsMs, this.#settings.sleepMs));
  }

  /**
   * Lets another manager serve the table, once. The next manager would rescue a task whose session is closed and whose
   * result is not in its row, so such results are written first. A result may still be unwritten when everything else
   * has ended, for example because its row is locked. Such a result is given up when the connection ends. Tasks with a
   * gap start first, because the next manager counts the gaps from the handover.
   */
  async #handOver({ handOver }: ManagerLoopEvents): Promise<void> {
    const { groups, pendingResults, sessions, busyMode } = this.#components;
    if (this.#hasHandedOver || groups.hasStarting) return;
    for (const owner of pendingResults.unwrittenOwners) {
      if (!sessions.isOpen(owner)) return;
    }
    await busyMode.stop();
    await handOver();
    this.#hasHandedOver = true;
  }

  /**
   * Retries the work that waits for locked rows, every `sleep` ms. Due tasks whose rows are locked are rechecked sooner.
   * This also happens under load, when the loop does not pause.
   */
  async #retryLocked(): Promise<void> {
    const { workCycle } = this.#components;
    if (!workCycle.isWaiting && workCycle.retryMs > 0) return;
    if (performance.now() - this.#retriedAt >= this.#settings.sleepMs) {
      this.#retriedAt = performance.now();
      await workCycle.retryLocked(this.#client);
    } else if (workCycle.recheckMs === 0) {
      await workCycle.recheckLocked(this.#client);
    }
  }

  /**
   * Prunes finished rows (deletes those that are older than `keep`), one step at a time.
   *
   * @returns whether there is more to prune right away
   */
  async #prune(): Promise<boolean> {
    const { pruner } = this.#components;
    return await falseIfTransient(() => pruner.step(this.#client, this.#settings.batch));
  }

  /** Looks up predecessors and releases dependents. Returns whether there is more to do right away. */
  async #stepDependencies(): Promise<boolean> {
    const { dependencies, pruner } = this.#components;
    const haveChanged = await falseIfTransient(() => dependencies.step(this.#client));
    // Rows whose end others had to be told may be pruned now.
    if (haveChanged) pruner.touch();
    return haveChanged;
  }

  /**
   * Replans schedules after the server's clock was set back, and checks a few planned tasks against the server's time
   * zone data. Returns whether more should follow at once.
   */
  async #replan(): Promise<boolean> {
    const { clockSteps, zoneChanges } = this.#components;
    if (Math.min(clockSteps.pauseMs, zoneChanges.pauseMs) > 0) return false;
    this.#changed = true;
    return await falseIfTransient(
      async () => (await clockSteps.step(this.#client)) || (await zoneChanges.step(this.#client)),
    );
  }

  /**
   * Rescues tasks of dead sessions (orphans). No task is claimed before it is known which tasks are running.
   *
   * @returns false after a transient error, such as a lock on the table
   */
  async #rescueOrphans(): Promise<boolean> {
    return await falseIfTransient(async () => {
      await this.#scanOrphans();
      if (this.#components.orphans.size > 0) await this.#rescue();
      return true;
    });
  }

  async #scanOrphans(): Promise<void> {
    const { orphans, settingsAge } = this.#components;
    // The settings are compared for the first time before any session is opened.
    if (this.#scannedAt === 0) await settingsAge.compare(this.#client);
    if (this.#scannedAt === 0 || performance.now() - this.#scannedAt > this.#settings.resetMs) {
      await orphans.scan(this.#client, (row) => this.#isKnown(row));
      this.#scannedAt = performance.now();
    }
  }

  async #rescue(): Promise<void> {
    const { orphans, poolScaler, sessions, statistics } = this.#components;
    const { batch, crash: crashes } = this.#settings;
    // `grow` must not be called with 0 tasks here: that would withdraw the request for sessions that the next claim
    // needs.
    const openSessions = async (tasks: number): Promise<void> => {
      const more = tasks - sessions.free;
      if (this.#isAccepting && more > 0) await poolScaler.grow(this.#client, more);
    };
    // Starting a thread can take longer than the server needs to notice that a backend is gone, so sessions are opened
    // now.
    await openSessions(orphans.takeLostCount());
    const rescued = await orphans.check(this.#client, {
      crashes,
      batch,
      isKnown: (row) => this.#isKnown(row),
    });
    this.#components.otherManagers.watchOwners();
    statistics.rescued(orphans.takeOutcomes());
    if (rescued === 0) return;
    this.#changed = true;
    this.#components.dependencies.tableChanged();
    this.#stayAwake();
    await openSessions(rescued);
  }

  /**
   * Returns whether a claimed row needs no rescue. If the connection was lost before a claim was answered, the claimed
   * tasks belong to sessions that are alive but never got these tasks. Such tasks are released.
   */
  #isKnown(row: OwnedRow): boolean {
    const { sessions, pendingResults } = this.#components;
    // A row can have another owner than the one that is known here, for example after a failover to a server that has
    // not received the last claim of the task.
    if (sessions.tasks.has(row) || pendingResults.has(row)) return true;
    if (!sessions.owners().includes(row.owner)) return false;
    pendingResults.requeue([], [{ id: row.id, owner: row.owner }]);
    return true;
  }

  #stayAwake(): void {
    this.#components.pruner.touch();
    this.#deepSleep.stayAwake();
  }

  #request(): CycleRequest {
    const { groups, orphans, poolScaler, reserve, busyMode } = this.#components;
    const now = performance.now();
    const notified = this.#changed;
    const checkRuns = notified || (!busyMode.isNotified && now - this.#runsCheckedAt >= checkRunsMs);
    this.#changed = false;
    if (checkRuns) this.#runsCheckedAt = now;
    // Another manager that hands the table over may still write results, and does not notify this one.
    const polls = !busyMode.isNotified || orphans.size > 0;
    if (!this.#isAccepting) return { starts: noStarts, kept: 0, lookAhead: 0, checkRuns, notified, polls };
    // More tasks than the limit may be running, because tasks of earlier managers count as well.
    const allowed = Math.max(0, this.#settings.run - groups.totalRunning);
    return {
      starts: reserve.starts,
      kept: reserve.kept,
      lookAhead: Math.min(allowed, poolScaler.lookAhead),
      checkRuns,
      notified,
      polls,
    };
  }

  /**
   * Tells busy mode how the cycle went.
   *
   * @returns whether the next cycle has to start at once and check everything
   */
  async #updateBusyMode({ claimed, more, again, deferred }: CycleOutcome): Promise<boolean> {
    const { busyMode } = this.#components;
    const cycle = { found: claimed > 0 || more > 0 || again, full: this.#isFull(), deferred };
    if (!(await falseIfTransient(() => busyMode.afterCycle(cycle)))) return false;
    this.#changed = true;
    this.#stayAwake();
    return true;
  }

  /** Whether no task can start before a run ends. */
  /** Plans the next runs that the server has rejected so far. Returns whether there may be more to do right away. */
  async #planOwed(): Promise<boolean> {
    const { owed } = this.#components;
    if (owed.pauseMs > 0) return false;
    this.#changed = true;
    return await falseIfTransient(() => owed.step(this.#client));
  }

  #isFull(): boolean {
    const { groups, poolScaler, sessions } = this.#components;
    if (!this.#isAccepting || groups.totalRunning >= this.#settings.run) return true;
    return sessions.size > 0 && sessions.busy === sessions.size && poolScaler.lookAhead === 0;
  }

  #pauseMs({ nearestMs, gapMs }: CycleOutcome): number {
    const { remoteCapacity, orphans, loginCheck, poolScaler, pruner, dependencies } = this.#components;
    const { zoneChanges, clockSteps, busyMode, workCycle, owed } = this.#components;
    // If a planned time stays in the past, the row of its task is locked, and later planned times are hidden behind it.
    // Another cycle at once would not help, but a cycle is needed before long.
    this.#overdueCycles = nearestMs === 0 ? this.#overdueCycles + 1 : 0;
    const isOverdue = this.#overdueCycles > 1;
    const { sleepMs, resetMs } = this.#settings;
    const canSleepDeeply = this.isAsleep && !isOverdue && !workCycle.isWaiting;
    return Math.ceil(
      Math.min(
        canSleepDeeply ? maxSleepMs : sleepMs,
        isOverdue ? Infinity : (nearestMs ?? Infinity),
        gapMs,
        orphans.pauseMs,
        Math.max(workCycle.retryMs, sleepMs),
        Math.max(workCycle.recheckMs, 1),
        poolScaler.pauseMs ?? Infinity,
        remoteCapacity.pauseMs,
        busyMode.pauseMs,
        this.isAsleep ? Math.max(loginCheck.pauseMs, 1) : Infinity,
        Math.max(pruner.pauseMs, 1),
        Math.max(Math.min(zoneChanges.pauseMs, clockSteps.pauseMs), 1),
        Math.max(owed.pauseMs, 1),
        dependencies.pauseMs,
        resetMs,
      ),
    );
  }

  #isIdle({ claimed, more, again, deferred }: CycleOutcome): boolean {
    const { remoteCapacity, groups, workCycle } = this.#components;
    if (workCycle.isWaiting || remoteCapacity.hasWaiting) return false;
    return !deferred && claimed === 0 && more === 0 && !again && groups.totalRunning === 0;
  }
}

async function falseIfTransient(step: () => Promise<boolean>): Promise<boolean> {
  try {
    return await step();
  } catch (error) {
    if (isTransient(error)) return false;
    throw error;
  }
}

import type { Client } from "../../shared/postgres/client.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { LedgerRotation } from "../upkeep/ledgerRotation.js";
import type { OrphanRescuer } from "../recovery/orphanRescuer.js";
import type { PendingResults } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { Pruner } from "../upkeep/pruner.js";
import type { ServerConnectionLimit } from "../sessions/serverConnectionLimit.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { ManagerSettings } from "../settings.js";
import type { SettingsAge } from "../sessions/settingsAge.js";
import type { OwnedRow } from "../recovery/rescue.sql.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { Statistics } from "../telemetry/statistics.js";
import type { WorkCycle, CycleOutcome } from "./workCycle.js";
import type { WakeUps } from "./wakeUps.js";
import type { PoolScaler } from "../sessions/poolScaler.js";

/** In deep sleep the table is checked this often in any case, in ms. */
const longestSleepMs = 5 * 60_000;
/** How often it looks, when it is not told, whether what runs is still wanted, in ms. */
const watchMs = 200;

export interface ManagerLoopOptions {
  readonly bell: WakeSignal;
  readonly groups: ActiveGroups;
  readonly sessions: SessionPool;
  readonly outbox: PendingResults;
  readonly orphans: OrphanRescuer;
  readonly turn: WorkCycle;
  readonly settingsAge: SettingsAge;
  readonly workforce: PoolScaler;
  readonly serverRoom: ServerConnectionLimit;
  readonly pruning: Pruner;
  readonly ledgers: LedgerRotation;
  readonly wakeUps: WakeUps;
  readonly statistics: Statistics;
  readonly runTimes: RunTimes;
}

/**
 * The manager at work, from the moment it holds the table's lock until its connection ends or it
 * is told to finish: one turn after another, each when there is something to do.
 *
 *   awake ──`idle` empty checks──▶ asleep (no executors; until a wake-up or the nearest plan)
 *     ▲                              │
 *     └────────wake-up, or a task────┘
 *
 * Drained, it lets the table go as soon as it claims nothing more, and only writes what comes out of
 * its sessions: what they have counts as running for whoever has the table then. What came out of
 * sessions that are gone is written before that, since it would be taken for cut off.
 */
export class ManagerLoop {
  readonly #client: Client;
  #settings: ManagerSettings;
  readonly #parts: ManagerLoopOptions;
  /** Whether tasks may be started. */
  #accepting = true;
  /** Whether it was told that nothing more is claimed. */
  #released = false;
  /** Whether another manager may have the table. */
  #handedOver = false;
  /** Somebody changed the table since the last turn: what runs may not be wanted any more. */
  #changed = true;
  #asleep = false;
  #emptyChecks = 0;
  #overdueTurns = 0;
  #releasedAt = performance.now();
  #scannedAt = 0;
  /** When the last turn ended. */
  #turnedAt = performance.now();
  #watchedAt = 0;

  constructor(client: Client, settings: ManagerSettings, parts: ManagerLoopOptions) {
    this.#client = client;
    this.#settings = settings;
    this.#parts = parts;
  }

  /** Somebody tells that something happened to the table. */
  hear(): void {
    this.#parts.wakeUps.hear();
    this.wake();
  }

  /** Something happened to the table. */
  wake(): void {
    this.#changed = true;
    this.#stayAwake();
    this.#parts.bell.notify();
  }

  /** What it goes by. */
  get state(): Readonly<Record<string, number | boolean | null>> {
    const { turn, wakeUps } = this.#parts;
    const turnMs = Math.round(performance.now() - this.#turnedAt);
    return { asleep: this.#asleep, told: wakeUps.told, turnMs, waiting: turn.waiting };
  }

  /** From the next turn on it goes by these. */
  reconfigure(settings: ManagerSettings): void {
    this.#settings = settings;
    this.wake();
  }

  /** Whether it waits for a wake-up or the nearest plan only. */
  get asleep(): boolean {
    return this.#asleep;
  }

  /** Starts nothing more. What the server has refused is tried once more, and not waited for. */
  drain(): void {
    this.#accepting = false;
    this.#parts.outbox.release(Infinity);
    this.#parts.bell.notify();
  }

  /**
   * Works until `finished` says so.
   *
   * @param told.began called once, when it is seen that it can work, or has to wait for a lock only.
   * @param told.worked called after each turn that nothing went wrong in.
   * @param told.handOver called once when nothing more is claimed and another manager may have the table:
   * before anything else is done, unless results of sessions that are gone are to be written first.
   * @param told.released called once when nothing more is claimed, and that was done if it could be at once.
   */
  async run(
    finished: () => boolean,
    told: {
      readonly began: () => void;
      readonly worked: () => void;
      readonly handOver: () => Promise<void>;
      readonly released: () => void;
    },
  ): Promise<void> {
    const { bell, ledgers, serverRoom, turn, workforce, wakeUps } = this.#parts;
    // This connection does not know yet what has to wait.
    await turn.release(this.#client);
    let begin = (): void => {
      begin = () => {};
      told.began();
    };
    while (!finished()) {
      await serverRoom.settle(this.#client);
      if (!this.#accepting) {
        await this.#handOver(told.handOver);
        if (!this.#released) told.released();
        this.#released = true;
        const more = await turn.finish(this.#client);
        told.worked();
        await this.#release();
        await this.#handOver(told.handOver);
        if (!more) await bell.wait(Math.min(watchMs, this.#settings.sleepMs));
        continue;
      }
      if (!(await this.#foundOrphans())) {
        begin();
        await bell.wait(this.#settings.sleepMs);
        continue;
      }
      const since = performance.now();
      const outcome = await turn.once(this.#client, this.#settings, this.#room());
      this.#turnedAt = performance.now();
      begin();
      told.worked();
      this.#parts.statistics.turned(outcome, since);
      if (outcome.claimed > 0) this.#parts.runTimes.turned(performance.now() - since);
      if (this.#accepting) await workforce.grow(this.#client, outcome.more);
      if (outcome.more === 0) workforce.shrink();
      if (outcome.claimed > 0) this.#stayAwake();
      // Those that end long after the last one was started are kept no longer than others.
      if (outcome.ended > 0 || outcome.gone > 0) this.#parts.pruning.touch();
      await ledgers.tend(this.#client);
      const pruning = await this.#prune();
      const look = await this.#look(outcome);
      const busy = look || pruning || outcome.again || (await bell.wait(this.#pauseMs(outcome)));
      if (!busy && wakeUps.told && this.#idle(outcome)) await this.#emptyCheck();
      await this.#release();
    }
  }

  /**
   * Lets another manager have the table, once. It takes a run for cut off whose session is gone and whose
   * end is not in its row, so such ends come first; one that is not written when all else has ended, say
   * since somebody has its row locked, is given up with the connection.
   */
  async #handOver(handOver: () => Promise<void>): Promise<void> {
    const { outbox, sessions, wakeUps } = this.#parts;
    if (this.#handedOver) return;
    for (const owner of outbox.owners) if (!sessions.stays(owner)) return;
    await wakeUps.leave();
    await handOver();
    this.#handedOver = true;
  }

  /** Every `sleep`, however busy it is: what waits for a lock must not wait for a pause as well. */
  async #release(): Promise<void> {
    const { turn } = this.#parts;
    if (!turn.waiting && turn.retryMs > 0) return;
    if (performance.now() - this.#releasedAt < this.#settings.sleepMs) return;
    this.#releasedAt = performance.now();
    await turn.release(this.#client);
  }

  /** False when somebody has locked the table. */
  async #prune(): Promise<boolean> {
    try {
      return await this.#parts.pruning.step(this.#client, this.#settings.batch);
    } catch (error) {
      if (isTransient(error)) return false;
      throw error;
    }
  }

  /** Nothing is claimed before it is known what runs; false when somebody has locked the table. */
  async #foundOrphans(): Promise<boolean> {
    try {
      await this.#findOrphans();
      return true;
    } catch (error) {
      if (isTransient(error)) return false;
      throw error;
    }
  }

  async #findOrphans(): Promise<void> {
    const { orphans, sessions, settingsAge, workforce } = this.#parts;
    // Before any session is opened.
    if (this.#scannedAt === 0) await settingsAge.compare(this.#client);
    if (this.#scannedAt === 0 || performance.now() - this.#scannedAt > this.#settings.resetMs) {
      await orphans.scan(this.#client, (row) => this.#known(row));
      this.#scannedAt = performance.now();
    }
    if (orphans.size === 0) return;
    // A thread may take longer to start than the server to see that one is gone.
    const lost = orphans.takeLost();
    if (this.#accepting) await workforce.grow(this.#client, Math.max(0, lost - sessions.free));
    const rescued = await orphans.check(this.#client, {
      crashes: this.#settings.crash,
      batch: this.#settings.batch,
    });
    this.#parts.statistics.rescued(rescued);
    if (rescued === 0) return;
    this.#changed = true;
    this.#stayAwake();
    if (this.#accepting) await workforce.grow(this.#client, Math.max(0, rescued - sessions.free));
  }

  /** A claim whose answer was lost with the connection left tasks with sessions of ours: not run. */
  #known(row: OwnedRow): boolean {
    const { sessions, outbox } = this.#parts;
    if (sessions.runs(row.id) || outbox.has(row.id)) return true;
    if (!sessions.owners().includes(row.owner)) return false;
    outbox.putBack([], [{ id: row.id, owner: row.owner }]);
    return true;
  }

  #stayAwake(): void {
    this.#parts.pruning.touch();
    this.#asleep = false;
    this.#emptyChecks = 0;
  }

  #room(): { start: number; lookAhead: number; watch: boolean; told: boolean } {
    const now = performance.now();
    const told = this.#changed;
    const watch = told || (!this.#parts.wakeUps.told && now - this.#watchedAt >= watchMs);
    this.#changed = false;
    if (watch) this.#watchedAt = now;
    if (!this.#accepting) return { start: 0, lookAhead: 0, watch, told };
    // Those that run may be more: tasks found running count as well.
    const allowed = Math.max(0, this.#settings.run - this.#parts.groups.total);
    const { start, lookAhead } = this.#parts.workforce;
    return {
      start: Math.min(allowed, start),
      lookAhead: Math.min(allowed, lookAhead),
      watch,
      told,
    };
  }

  /** Whether the next turn has to look at everything, and at once. */
  async #look(outcome: CycleOutcome): Promise<boolean> {
    const turn = { found: found(outcome), full: this.#full(), putOff: outcome.putOff };
    try {
      if (!(await this.#parts.wakeUps.after(turn))) return false;
    } catch (error) {
      if (isTransient(error)) return false;
      throw error;
    }
    this.#changed = true;
    this.#stayAwake();
    return true;
  }

  /** Nothing more can be started before something that runs has ended. */
  #full(): boolean {
    const { groups, sessions, workforce } = this.#parts;
    if (!this.#accepting || groups.total >= this.#settings.run) return true;
    return sessions.size > 0 && sessions.busy === sessions.size && workforce.lookAhead === 0;
  }

  #pauseMs({ nearestMs }: CycleOutcome): number {
    const { orphans, pruning, serverRoom, turn, wakeUps, workforce } = this.#parts;
    // A task that stays overdue is locked by somebody, and may hide the plan of the next: looking
    // again at once would not help, but it has to be looked again.
    this.#overdueTurns = nearestMs === 0 ? this.#overdueTurns + 1 : 0;
    const overdue = this.#overdueTurns > 1;
    const { sleepMs } = this.#settings;
    return Math.ceil(
      Math.min(
        this.#asleep && !overdue && !turn.waiting ? longestSleepMs : sleepMs,
        overdue ? Infinity : (nearestMs ?? Infinity),
        orphans.pauseMs,
        Math.max(turn.retryMs, sleepMs),
        workforce.pauseMs ?? Infinity,
        serverRoom.pauseMs,
        wakeUps.pauseMs,
        Math.max(pruning.pauseMs, 1),
        this.#settings.resetMs,
      ),
    );
  }

  #idle(outcome: CycleOutcome): boolean {
    const { groups, serverRoom, turn } = this.#parts;
    if (turn.waiting || serverRoom.waiting) return false;
    return !outcome.putOff && !found(outcome) && groups.total === 0;
  }

  async #emptyCheck(): Promise<void> {
    this.#emptyChecks += 1;
    if (this.#asleep || this.#emptyChecks < this.#settings.idle) return;
    this.#asleep = true;
    await this.#parts.workforce.dismiss();
  }
}

const found = ({ claimed, more, again }: CycleOutcome): boolean => claimed > 0 || more > 0 || again;

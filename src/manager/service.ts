import type { Client } from "../shared/database.js";
import type { Bell } from "./bell.js";
import type { Groups } from "./groups.js";
import type { Orphans } from "./orphans.js";
import type { Outbox } from "./outbox.js";
import type { Sessions } from "./sessions.js";
import type { ManagerSettings } from "./settings.js";
import type { OwnedRow } from "./sql/rescue.js";
import type { Turn, TurnOutcome } from "./turn.js";
import type { Workforce } from "./workforce.js";

/** In deep sleep the table is checked this often in any case, in ms. */
const longestSleepMs = 5 * 60_000;
/** How often it is asked whether the server process of an orphaned task is gone, in ms. */
const orphanCheckMs = 200;

export interface ServiceParts {
  readonly bell: Bell;
  readonly groups: Groups;
  readonly sessions: Sessions;
  readonly outbox: Outbox;
  readonly orphans: Orphans;
  readonly turn: Turn;
  readonly workforce: Workforce;
}

/**
 * The manager at work, from the moment it holds the table's lock until its connection ends or it
 * is told to finish: one turn after another, each when there is something to do.
 *
 *   awake ──`idle` empty checks──▶ asleep (no executors; until a wake-up or the nearest plan)
 *     ▲                              │
 *     └────────wake-up, or a task────┘
 */
export class Service {
  readonly #client: Client;
  #settings: ManagerSettings;
  readonly #parts: ServiceParts;
  /** Whether tasks may be started. */
  #accepting = true;
  #asleep = false;
  #emptyChecks = 0;
  #overdueTurns = 0;
  #scannedAt = 0;

  constructor(client: Client, settings: ManagerSettings, parts: ServiceParts) {
    this.#client = client;
    this.#settings = settings;
    this.#parts = parts;
  }

  /** Something happened to the table. */
  wake(): void {
    this.#stayAwake();
    this.#parts.bell.ring();
  }

  /** From the next turn on it goes by these. */
  reconfigure(settings: ManagerSettings): void {
    this.#settings = settings;
    this.wake();
  }

  /** Starts nothing more. */
  drain(): void {
    this.#accepting = false;
    this.#parts.bell.ring();
  }

  /** Works until `finished` says so. */
  async run(finished: () => boolean): Promise<void> {
    const { bell, turn, workforce } = this.#parts;
    while (!finished()) {
      await this.#findOrphans();
      const outcome = await turn.once(this.#client, this.#settings, this.#room());
      if (this.#accepting) await workforce.grow(this.#client, outcome.more);
      if (outcome.claimed > 0) this.#stayAwake();
      if (outcome.again) continue;
      const rung = await bell.wait(this.#pauseMs(outcome));
      if (rung) continue;
      turn.release();
      if (this.#idle(outcome)) await this.#emptyCheck();
    }
  }

  async #findOrphans(): Promise<void> {
    const { orphans } = this.#parts;
    if (this.#scannedAt === 0 || performance.now() - this.#scannedAt > this.#settings.resetMs) {
      this.#scannedAt = performance.now();
      await orphans.scan(this.#client, (row) => this.#known(row));
    }
    if (orphans.size === 0) return;
    await orphans.check(this.#client, {
      crashes: this.#settings.crash,
      batch: this.#settings.batch,
    });
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
    this.#asleep = false;
    this.#emptyChecks = 0;
  }

  #room(): { start: number; lookAhead: number } {
    if (!this.#accepting) return { start: 0, lookAhead: 0 };
    const start = this.#settings.run - this.#parts.groups.total;
    return { start, lookAhead: Math.min(this.#parts.workforce.lookAhead, start) };
  }

  #pauseMs({ nearestMs }: TurnOutcome): number {
    const { orphans, workforce } = this.#parts;
    // A task that stays overdue is locked by somebody: looking again at once would not help.
    this.#overdueTurns = nearestMs === 0 ? this.#overdueTurns + 1 : 0;
    const nearest = this.#overdueTurns > 1 ? Infinity : (nearestMs ?? Infinity);
    return Math.ceil(
      Math.min(
        this.#asleep ? longestSleepMs : this.#settings.sleepMs,
        nearest,
        orphans.size > 0 ? orphanCheckMs : Infinity,
        workforce.pauseMs ?? Infinity,
        this.#settings.resetMs,
      ),
    );
  }

  #idle(outcome: TurnOutcome): boolean {
    const { groups, outbox } = this.#parts;
    return outcome.claimed === 0 && outcome.more === 0 && groups.total === 0 && outbox.held === 0;
  }

  async #emptyCheck(): Promise<void> {
    this.#emptyChecks += 1;
    if (this.#asleep || this.#emptyChecks < this.#settings.idle) return;
    this.#asleep = true;
    await this.#parts.workforce.dismiss();
  }
}

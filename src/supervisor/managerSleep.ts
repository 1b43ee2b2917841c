import { sleep } from "../shared/backoff.js";
import type { ErrorReport } from "../shared/errors.js";
import type { ManagerParameters } from "../shared/ipc/managerMessages.js";
import type { ManagerMemory, Rest, SleepingTable } from "../shared/ipc/sleepingTable.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import type { WakeReason, WatchConnection, WatchedTable } from "./watchConnection.js";

/** With at most this many managers, a manager sleeps only after it has had nothing to do for as long as is configured. */
export const fewManagers = 16;

/** How long a table stays awake after its lock could not be taken for it, in ms. */
const failedSleepMs = 5 * 60_000;

/** How long after a failure it is tried again to watch a table that may sleep, in ms. */
const retryMs = 1_000;

type Watch = Pick<WatchConnection, "add" | "lock" | "remove">;

interface Watching {
  readonly table: WatchedTable;
  readonly connection: Watch;
}

interface ManagerSleepOptions {
  readonly watches: { readonly of: (target: ConnectionTarget) => Watch };
  readonly target: () => ConnectionTarget;
  /** Tells the manager that its table is watched, so that it may end. */
  readonly accept: () => void;
  readonly asleep: () => void;
  /** The table is asleep, and at present nothing would wake it. */
  readonly unwatched: (reason: ErrorReport) => void;
  readonly refused: (reason: ErrorReport | null) => void;
}

/**
 * The sleep of one manager, from the offer of its thread to the start of the next one.
 *
 *   awake ──offer, watch listens──▶ accepted ──thread ended, lock taken──▶ asleep ──▶ awake
 *     ▲                                │
 *     └────withdrawn, or woken─────────┘
 */
export class ManagerSleep {
  readonly #options: ManagerSleepOptions;
  #watch: Watching | null = null;
  /** What the manager has offered and not withdrawn. */
  #offered: SleepingTable | null = null;
  /** Why the table has to be woken, or was woken last. Null if it may sleep. */
  #reason: WakeReason | "configured" | null = "configured";
  #memory: { readonly known: ManagerMemory; readonly since: number } | null = null;
  #rest: Rest | null = null;
  #isAsleep = false;
  #isRefused = false;
  #wakeUp: () => void = () => {};
  #notBefore = 0;

  constructor(options: ManagerSleepOptions) {
    this.#options = options;
  }

  /** Whether the table can sleep without having been served. */
  get isPrepared(): boolean {
    return this.#rest !== null;
  }

  get isAsleep(): boolean {
    return this.#isAsleep;
  }

  /** Whether the manager that starts now probably has tasks to run. */
  get hasTask(): boolean {
    return this.#reason === "task";
  }

  /** For the manager that starts now. */
  takeParameters(managers: number): Pick<ManagerParameters, "memory" | "sleepsAtOnce"> {
    const memory = this.#memory;
    this.#memory = null;
    const sleepsAtOnce = !this.hasTask && managers > fewManagers;
    if (memory === null) return { memory, sleepsAtOnce };
    const sleptMs = performance.now() - memory.since;
    const { quietMs, zoneCheckMs } = memory.known;
    const settled = this.hasTask ? memory.known.settled : null;
    return {
      memory: { quietMs: quietMs + sleptMs, zoneCheckMs: Math.max(0, zoneCheckMs - sleptMs), settled },
      sleepsAtOnce,
    };
  }

  /** The manager has nothing to do for long. */
  offer(table: SleepingTable): void {
    this.withdraw();
    if (performance.now() < this.#notBefore) return;
    this.#offered = table;
    void this.#accept(table);
  }

  /** Tries until the table is watched: the connection that sleeping tables share may just have been lost. */
  async #accept(table: SleepingTable): Promise<void> {
    while (this.#offered === table) {
      if (await this.#watchTable(table)) return this.#options.accept();
      await sleep(retryMs);
    }
  }

  /** Before the first manager: watches the table and takes its lock. Returns false if the table needs a manager. */
  async begin(table: SleepingTable): Promise<boolean> {
    if (!(await this.#watchTable(table))) return false;
    const watch = this.#watch;
    if (watch !== null && (await watch.connection.lock(watch.table)) === true) return true;
    this.withdraw();
    return false;
  }

  /** After `begin`. Null: the table has something to do. */
  prepare(rest: Rest | null): void {
    if (rest === null) this.withdraw();
    this.#rest = rest;
  }

  takeRest(): Rest | null {
    const rest = this.#rest;
    this.#rest = null;
    return rest;
  }

  /** Resolves with whether the table is watched now. */
  async #watchTable(table: SleepingTable): Promise<boolean> {
    const watched: WatchedTable = {
      table,
      wake: (reason) => this.wake(reason),
      regained: () => this.#options.asleep(),
      refused: (reason) => {
        if (this.#isAsleep) this.#setRefused(reason);
      },
      lost: (reason) => {
        this.#memory = null;
        if (this.#isAsleep) this.#options.unwatched(reason);
        else this.#unwatch();
      },
    };
    const connection = this.#options.watches.of(this.#options.target());
    this.#watch = { table: watched, connection };
    this.#reason = null;
    const isWatched = await connection.add(watched);
    if (this.#watch?.table !== watched) return false;
    if (!isWatched) this.#watch = null;
    return isWatched;
  }

  withdraw(): void {
    this.#offered = null;
    this.#unwatch();
  }

  #unwatch(): void {
    const watch = this.#watch;
    this.#watch = null;
    if (watch !== null) watch.connection.remove(watch.table);
  }

  wake(reason: WakeReason | "configured"): void {
    // A manager that waits for its turn has to apply the parameters, whatever it was woken for.
    if (this.#reason === null || reason === "configured") this.#reason = reason;
    this.#wakeUp();
  }

  /**
   * Called when the manager has ended to sleep, or instead of its start. Resolves when its table has to be served.
   *
   * @param wakeMs time until there is something to do, in ms, if the watch does not know it yet
   */
  async sleep(known: ManagerMemory, signal: AbortSignal, wakeMs = Infinity): Promise<void> {
    const watch = this.#watch;
    if (watch !== null && this.#reason === null) {
      this.#memory = { known, since: performance.now() };
      await this.#sleepIfLocked(watch, signal, wakeMs);
    }
    this.#reason ??= "error";
    this.withdraw();
  }

  async #sleepIfLocked({ table, connection }: Watching, signal: AbortSignal, wakeMs: number): Promise<void> {
    const isLocked = await connection.lock(table, wakeMs);
    if (isLocked === false) this.#notBefore = performance.now() + failedSleepMs;
    if (isLocked !== true) {
      this.#memory = null;
      return;
    }
    this.#isAsleep = true;
    this.#options.asleep();
    await new Promise<void>((resolve) => {
      this.#wakeUp = resolve;
      signal.addEventListener("abort", this.#wakeUp);
      if (this.#reason !== null || signal.aborted) resolve();
    });
    signal.removeEventListener("abort", this.#wakeUp);
    this.#wakeUp = () => {};
    this.#isAsleep = false;
    // From here on, the manager finds it out.
    if (this.#isRefused) this.#setRefused(null);
  }

  #setRefused(reason: ErrorReport | null): void {
    this.#isRefused = reason !== null;
    this.#options.refused(reason);
  }
}

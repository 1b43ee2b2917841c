import { EventEmitter } from "eventemitter3";
import { Backoff, sleep } from "../shared/backoff.js";
import type { Entry, TableLocation } from "../shared/config/types.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import { errorDefinitions } from "../shared/errorCodes.js";
import { PgTaskError, toReport, type ErrorReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import type { FromManager, ManagerParameters, ToManager } from "../shared/ipc/managerMessages.js";
import type { ManagerMemory } from "../shared/ipc/sleepingTable.js";
import type { Limiter } from "../shared/limiter.js";
import { stopMarginsMs } from "../shared/tuning.js";
import { EnsureAccess } from "./ensureAccess.js";
import { HostedManager, type ManagerEnd } from "./hostedManager.js";
import { fewManagers, ManagerSleep } from "./managerSleep.js";
import type { RolesAndDatabases } from "./rolesAndDatabases.js";
import type { SpareWorkers } from "./spareWorkers.js";
import type { TableWatches } from "./tableWatches.js";

/** A manager with short tasks stays for at most so many times as long as it took to begin, within these limits. */
const briefStay = { factor: 5, leastMs: 300, mostMs: 2_000 };

const stopped = { reason: new PgTaskError("THREAD_DIED", "stopped"), livedMs: 0 };

export interface ManagerThreadEvents {
  ready: [];
  /** The thread has ended because there is nothing to do, and the table is watched. */
  asleep: [];
  disconnected: [];
  /** The manager cannot serve its table for this reason, and keeps trying. */
  unavailable: [reason: ErrorReport];
  /** The manager is stopping and claims no more tasks. */
  claimingStopped: [];
  /** Any other message of the manager about its sessions and tasks. */
  message: [message: FromManager];
  /** The thread has ended, and with it all its sessions. */
  died: [];
}

export interface ManagerThreadOptions extends Required<Pick<ManagerParameters, "takesOver" | "afterFrozen">> {
  readonly rolesAndDatabases: Pick<RolesAndDatabases, "ensure"> & Partial<Pick<RolesAndDatabases, "administratorOf">>;
  readonly spareWorkers: Pick<SpareWorkers, "take" | "giveBack">;
  readonly watches: Pick<TableWatches, "of">;
  readonly managers: () => number;
  /** Lets a few threads begin at once. */
  readonly turns: Pick<Limiter, "run" | "waiting">;
  readonly log: Log;
  readonly writeLine: (line: string) => void;
}

/**
 * Runs one manager in a thread, and restarts the manager when the thread dies. In deep sleep, the thread ends, and a
 * connection that sleeping tables share watches the table until there is something to do.
 *
 *   ensuring role and database ──▶ thread running ──stop──▶ ended
 *     ▲                              │  │   ▲
 *     └── died: after a delay ───────┤  │   └──woken─────────┐
 *     └── table moved: at once ──────┘  └──nothing to do──▶ asleep
 */
export class ManagerThread extends EventEmitter<ManagerThreadEvents> {
  /** Resolves when the manager first serves its table or first reports that it cannot, or when it is stopped. */
  readonly settled: Promise<void>;
  readonly claimingStopped: Promise<void>;
  readonly #options: ManagerThreadOptions;
  readonly #log: Log;
  readonly #ending = new AbortController();
  /** Delays before a thread that died is restarted. */
  readonly #restartBackoff: Backoff;
  readonly #access: EnsureAccess;
  readonly sleep: ManagerSleep;
  #entry: Entry;
  /** Where the table is according to the server's settings. Null if no manager has reported another place. */
  #location: TableLocation | null = null;
  #isMoving = false;
  #child: HostedManager | null = null;
  #running: Promise<void> = Promise.resolve();
  /** Aborted to skip the current delay, or the next one if an attempt is still under way. */
  #retryNow = new AbortController();
  #isDisconnected = false;
  #takesOver: boolean;
  #reconfigureWaiters: (() => void)[] = [];

  constructor(entry: Entry, options: ManagerThreadOptions) {
    super();
    this.#entry = entry;
    this.#options = options;
    this.#takesOver = options.takesOver;
    this.#log = options.log;
    this.#restartBackoff = new Backoff({ firstMs: 100, maxMs: maxRestartMs(entry), calmMs: 1_000 });
    const accessOptions = {
      ...options,
      entry: () => this.#entry,
      signal: this.#ending.signal,
      unavailable: (reason: ErrorReport) => this.#setUnavailable(reason),
      pause: async (ms: number) => await this.#pause(ms),
    };
    this.#access = new EnsureAccess(accessOptions, maxRestartMs(entry));
    this.sleep = new ManagerSleep({
      watches: options.watches,
      target: () => this.target,
      accept: () => this.#post({ type: "sleep" }),
      asleep: () => {
        this.#isDisconnected = false;
        this.emit("asleep");
      },
      unwatched: (reason) => this.#setUnavailable(reason),
      refused: (reason) => this.emit("message", { type: "sessionsRefused", reason }),
    });
    this.claimingStopped = new Promise((resolve) => void this.once("claimingStopped", resolve));
    this.settled = new Promise((resolve) => {
      this.once("ready", resolve);
      this.once("asleep", resolve);
      this.once("unavailable", () => resolve());
      this.#ending.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  retryNow(): void {
    if (!this.#isDisconnected) return;
    this.#retryNow.abort();
    this.#post({ type: "retryNow" });
  }

  probe(): void {
    if (!this.#isDisconnected) this.#post({ type: "probe" });
  }

  get target(): ConnectionTarget {
    return this.#entry.target;
  }

  get entry(): Entry {
    return this.#entry;
  }

  start(): void {
    this.#running = this.#keepRunning().finally(() => this.emit("claimingStopped"));
  }

  grant(sessions: number, number: number): void {
    this.#post({ type: "grant", sessions, number });
  }

  /**
   * Passes the parameters of `entry`, whose target must be unchanged, to the manager, which also reads the server's
   * settings again. Resolves when they are in effect, as far as this is possible now, or when the thread has died.
   */
  async reconfigure(entry: Entry): Promise<void> {
    this.#setEntry(entry);
    const answer = new Promise<void>((resolve) => this.#reconfigureWaiters.push(resolve));
    // A manager that is falling asleep may end before it has applied them.
    this.sleep.wake("configured");
    if (this.sleep.isAsleep) return await answer;
    const child = this.#child;
    if (child === null) return;
    child.sendParameters("reconfigure", this.#parameters());
    await answer;
  }

  /** Passes the parameters of `entry` to a sleeping table that need not be served for them. Returns false if it is awake. */
  keepAsleep(entry: Entry): boolean {
    if (this.sleep.isAsleep) this.#setEntry(entry);
    return this.sleep.isAsleep;
  }

  #setEntry(entry: Entry): void {
    this.#entry = entry;
    this.#restartBackoff.limit(maxRestartMs(entry));
    this.#restartBackoff.reset();
    this.#access.reset(maxRestartMs(entry));
    this.#retryNow.abort();
  }

  /**
   * Terminates the thread if stopping takes longer than the grace period plus a margin. If `stop` is called again, the
   * shorter grace period applies.
   */
  async stop(graceMs: number): Promise<void> {
    this.#ending.abort();
    this.#post({ type: "stop", graceMs });
    const done = new AbortController();
    const ended = this.#running.finally(() => done.abort());
    if (await sleep(graceMs + stopMarginsMs.managerThread, done.signal)) await this.#terminate();
    await ended;
  }

  async #terminate(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#child = null;
    this.#log.error({ entry: this.#entry.key }, "manager did not stop in time, thread terminated");
    await child.terminate();
  }

  async #keepRunning(): Promise<void> {
    // A table that is watched has a role and a database.
    while (this.sleep.isPrepared || (await this.#access.ensure())) {
      const end = await this.#runAndSleep();
      if (this.#ending.signal.aborted) return;
      this.#takesOver = true;
      if (this.#isMoving) {
        this.#isMoving = false;
        this.emit("died");
        continue;
      }
      // The delays become short again only if the thread has lived for long, because a manager that dies again soon has
      // not recovered.
      if (end.livedMs > maxRestartMs(this.#entry)) this.#restartBackoff.reset();
      const pauseMs = this.#restartBackoff.next();
      const { message } = end.reason;
      this.#log.error({ entry: this.#entry.key, reason: message, pauseMs }, "manager died, restarting");
      this.#setUnavailable(toReport(end.reason));
      this.emit("died");
      this.#retryNow = new AbortController();
      await this.#pause(pauseMs);
    }
  }

  /** Runs a thread whenever there is something to do, until one dies or is stopped. */
  async #runAndSleep(): Promise<{ readonly reason: PgTaskError; readonly livedMs: number }> {
    const rest = this.sleep.takeRest();
    if (rest !== null && !(await this.#sleepUntilWoken(rest.memory, rest.wakeMs))) return stopped;
    for (;;) {
      const since = performance.now();
      const end = await this.#runThread();
      if ("reason" in end) {
        this.sleep.withdraw();
        return { reason: end.reason, livedMs: performance.now() - since };
      }
      if (!(await this.#sleepUntilWoken(end.memory))) return stopped;
    }
  }

  /** Returns false if the manager is to stop. */
  async #sleepUntilWoken(memory: ManagerMemory, wakeMs?: number): Promise<boolean> {
    await this.sleep.sleep(memory, this.#ending.signal, wakeMs);
    this.#takesOver = this.sleep.hasTask;
    return !this.#ending.signal.aborted;
  }

  #setUnavailable(reason: ErrorReport): void {
    const wasDisconnected = this.#isDisconnected;
    this.#isDisconnected = errorDefinitions[reason.code].family === "CONNECTION";
    if (this.#isDisconnected && !wasDisconnected) this.emit("disconnected");
    this.#resolveReconfigure();
    this.emit("unavailable", reason);
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, AbortSignal.any([this.#ending.signal, this.#retryNow.signal]));
    this.#retryNow = new AbortController();
  }

  /** Runs a thread until it ends. Returns why it ended. */
  async #runThread(): Promise<ManagerEnd> {
    const { managers, spareWorkers, turns } = this.#options;
    let ended: Promise<ManagerEnd> = Promise.resolve(stopped);
    await turns.run(async () => {
      if (this.#ending.signal.aborted) return;
      const child = (this.#child = new HostedManager(spareWorkers.take(), {
        giveBack: (thread) => spareWorkers.giveBack(thread),
        limitMs: this.#entry.parameters["pg_conf.close"],
        receive: (message) => this.#receive(message),
      }));
      child.sendParameters("start", this.#parameters());
      ended = child.ended;
      const since = performance.now();
      const isServing = await child.begun(this.#ending.signal);
      if (isServing && managers() > fewManagers) await this.#untilAsleep(child, performance.now() - since);
    });
    const end = await ended;
    this.#child = null;
    this.#resolveReconfigure();
    return end;
  }

  /** A manager whose tasks are short sleeps again soon, and leaves its warm thread to one that waits. */
  async #untilAsleep(child: HostedManager, begunMs: number): Promise<void> {
    const { factor, leastMs, mostMs } = briefStay;
    const ms = Math.min(Math.max(leastMs, factor * begunMs), mostMs);
    await Promise.race([child.ended, sleep(ms, this.#ending.signal)]);
  }

  #parameters(): ManagerParameters {
    const { managers, afterFrozen, rolesAndDatabases } = this.#options;
    return {
      entry: { ...this.#entry, ...this.#location },
      takesOver: this.#takesOver,
      managers: managers(),
      afterFrozen,
      administrator: rolesAndDatabases.administratorOf?.(this.#entry) ?? null,
      ...this.sleep.takeParameters(managers()),
      staysBriefly: this.#options.turns.waiting > 0,
    };
  }

  /** Stops the thread. When its tasks have ended or its grace period is over, a new one serves the new location. */
  #moveTo(location: TableLocation): void {
    this.#location = location;
    if (this.#isMoving) return;
    this.#isMoving = true;
    const { key, parameters } = this.#entry;
    this.#log.info({ entry: key, ...location }, "table location changed, replacing the manager");
    this.#post({ type: "stop", graceMs: parameters["pg_conf.grace"] });
  }

  #resolveReconfigure(): void {
    for (const resolve of this.#reconfigureWaiters.splice(0)) resolve();
  }

  #receive(message: FromManager): void {
    switch (message.type) {
      case "ready":
        this.#isDisconnected = false;
        this.#resolveReconfigure();
        this.emit("ready");
        break;
      case "unavailable":
        this.#setUnavailable(message.reason);
        void this.#access.recreate(message.reason);
        break;
      case "tableMoved":
        this.#moveTo(message.location);
        break;
      case "claimingStopped":
        if (this.#ending.signal.aborted) this.emit("claimingStopped");
        break;
      case "sleepOffered":
        if (!this.#isMoving && !this.#ending.signal.aborted) this.sleep.offer(message.table);
        break;
      case "sleepWithdrawn":
        this.sleep.withdraw();
        break;
      case "reconfigured":
        this.#resolveReconfigure();
        break;
      case "log":
        this.#options.writeLine(message.line);
        break;
      default:
        this.emit("message", message);
    }
  }

  #post(message: ToManager): void {
    this.#child?.post(message);
  }
}

const maxRestartMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

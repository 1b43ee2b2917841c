import { isDeepStrictEqual } from "node:util";
import { Backoff, longestTimerMs, sleep } from "../shared/backoff.js";
import { Condition } from "../shared/condition.js";
import type { Entry, TableLocation } from "../shared/config/types.js";
import { toReport } from "../shared/errors.js";
import type { FromManager, ManagerParameters } from "../shared/ipc/managerMessages.js";
import type { LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import { stopMarginsMs } from "../shared/tuning.js";
import { createComponents, type ManagerComponents } from "./loop/components.js";
import { ManagerConnection } from "./loop/managerConnection.js";
import { SettingsReloader } from "./loop/settingsReloader.js";
import { WorkCycle } from "./loop/workCycle.js";
import { FinalWriteDeadline } from "./results/finalWriteDeadline.js";
import { taskTable, type TaskTable } from "./schema/taskTable.js";
import { changedSettings, type ManagerSettings } from "./model/settings.js";
import type { CreateTracing } from "./telemetry/loadTracing.js";
import { StallMonitor } from "./stalls/stallMonitor.js";
import { collectMs, maxCollectedResults } from "./model/tuning.js";
import { timeoutSignal } from "../shared/timeoutSignal.js";

/**
 * The manager of one task table. It connects, creates the table if necessary, locks the table and serves it. The table
 * lock is lost with the connection. The manager then starts no tasks until it has a new connection and the lock again.
 * In the meantime, its sessions finish the tasks that they run.
 *
 *   connecting ──table locked──▶ serving ──drain──▶ draining ──stop──▶ cancelling ─▶ writing results ─▶ ended
 *     ▲                             │
 *     └────error, after a delay─────┘
 */
export class Manager implements LifecycleHooks {
  /** The latest entry (the task table's configuration). Its target never changes. */
  #entry: Entry;
  /** How many managers the process has. */
  #managers: number;
  readonly #takesOver: boolean;
  readonly #table: TaskTable;
  readonly #send: (message: FromManager) => void;
  readonly #log: Log;
  readonly #threadLog: Log;
  readonly #components: ManagerComponents;
  readonly #workCycle: WorkCycle;
  readonly #connection: ManagerConnection;
  readonly #settingsReloader: SettingsReloader;
  readonly #backoff: Backoff;
  readonly #changes = new Condition();
  readonly #finalWriteDeadline = new FinalWriteDeadline();
  /**
   * Aborted when all executor threads have ended. From then on, no task is running, but results may still have to be
   * written.
   */
  readonly #ending = new AbortController();
  #settings: ManagerSettings | null = null;
  /**
   * Aborted to start the next attempt to serve without a delay. This can happen while the previous attempt is still
   * under way.
   */
  #retry = new AbortController();
  /**
   * Whether the server refuses the manager's login, as after a change of the password, or the table has another name now.
   * A manager that ends then does not wait until it can write its results: the next one, with the new password or name,
   * settles these tasks.
   */
  #isUnwritable = false;
  #isDraining = false;
  /** The time at which running tasks are cancelled, as a value of performance.now(). */
  #deadline = 0;
  #serving: Promise<void> = Promise.resolve();

  constructor(
    { entry, takesOver, managers, afterFrozen = false }: ManagerParameters,
    options: {
      readonly send: (message: FromManager) => void;
      readonly log: Log;
      /** Log for the lines of the executor threads. */
      readonly threadLog: Log;
      /** Null if no OpenTelemetry SDK is loaded. */
      readonly createTracing?: CreateTracing | null;
    },
  ) {
    const { log, send, threadLog, createTracing = null } = options;
    this.#entry = entry;
    this.#managers = managers;
    this.#takesOver = takesOver;
    this.#table = taskTable(entry.schema, entry.table);
    this.#send = send;
    this.#log = log;
    this.#threadLog = threadLog;
    this.#backoff = new Backoff({ firstMs: 100, maxMs: maxPauseMs(entry), calmMs: 1_000 });
    const shared = {
      entry: () => this.#entry,
      settings: () => this.#settings,
      settingsRead: (settings: ManagerSettings) => this.#applySettings(settings),
      tableLocated: (location: TableLocation) => this.#checkLocation(location),
      table: this.#table,
      signal: this.#ending.signal,
      send,
      log,
    };
    this.#components = createComponents({
      ...shared,
      isSuperuser: () => this.#connection.isSuperuser,
      server: () => this.#connection.server,
      serverMoved: (reason) => this.#connection.leave(reason),
      sessionChanged: (urgent) => this.#onSessionChange(urgent),
      // A manager that is not serving need not do anything, because each new connection creates missing objects anyway.
      objectMissing: () => {
        if (this.#connection.isServing) this.#settingsReloader.restore();
      },
      threadLog,
      createTracing,
    });
    this.#workCycle = new WorkCycle(this.#components);
    const maxRuns = (): number => this.#settings?.run ?? Infinity;
    this.#connection = new ManagerConnection({
      ...shared,
      components: this.#components,
      workCycle: this.#workCycle,
      stallMonitor: new StallMonitor({ ...this.#components, maxRuns, send }),
      reload: () => this.#settingsReloader.restart(),
      cycled: () => this.#onCycle(),
      isFinished: () => this.#isFinished(),
      managers: () => this.#managers,
      afterFrozen,
      changes: this.#changes,
    });
    this.#settingsReloader = new SettingsReloader({
      ...shared,
      homeDoubted: () => this.#connection.doubtHome(),
      refusedTable: (reason) => this.#connection.leave(reason),
      accepted: () => this.#components.sessionAccess.accepted(),
      refused: (reason) => this.#components.sessionAccess.refused(reason),
      attempted: () => send({ type: "reconfigured" }),
    });
  }

  grant(sessions: number, number: number): void {
    this.#components.poolScaler.grant(sessions, number);
    this.#releaseSessions();
    this.#components.wakeSignal.notify();
  }

  /** Applies new parameters and the server's current settings. */
  reconfigure({ entry, managers }: Pick<ManagerParameters, "entry" | "managers">): void {
    this.#entry = entry;
    this.#managers = managers;
    const level = entry.parameters["pg_conf.log"];
    this.#log.level = level;
    this.#threadLog.level = level;
    this.#backoff.limit(maxPauseMs(entry));
    this.#backoff.reset();
    this.#retry.abort();
    if (this.#connection.isServing) this.#settingsReloader.restart();
    else this.#send({ type: "reconfigured" });
  }

  /** Starts the next attempt to connect without further delay, because the server accepts connections again. */
  retry(): void {
    this.#retry.abort();
  }

  /** Finds out whether the connection has been cut, because another one to the same server was lost. */
  probe(): void {
    this.#connection.probe();
  }

  async start(): Promise<void> {
    // Tasks left by an earlier manager have to run soon, so an executor thread starts while this manager connects.
    if (this.#takesOver) this.#components.executors.start();
    this.#serving = this.#serveUntilEnd();
  }

  /** Stops claiming tasks, and waits until the running tasks have ended. */
  async drain(signal: AbortSignal, graceMs: number): Promise<void> {
    if (graceMs < Infinity) this.#deadline = performance.now() + graceMs;
    this.#beginDraining();
    await this.#changes.until(() => !this.#connection.mayClaim && this.#components.sessions.busy === 0, signal);
  }

  /** Cancels running tasks, which return to `PLAN`. The connection is closed last. */
  async stop(): Promise<void> {
    const { wakeSignal, executors, sessions, statistics, tracing } = this.#components;
    this.#beginDraining();
    this.#deadline = Math.max(this.#deadline, performance.now());
    const until = (beyondMs: number): AbortSignal => {
      const leftMs = Math.max(0, Math.ceil(this.#deadline + beyondMs - performance.now()));
      return timeoutSignal(Math.min(leftMs, longestTimerMs));
    };
    const haveRunsEnded = (): boolean => sessions.busy === 0;
    // The tasks of a claim whose answer is under way are not known yet. They are cancelled, too.
    await this.#changes.until(() => !this.#connection.mayClaim, until(stopMarginsMs.cancelledRuns));
    if (!haveRunsEnded()) {
      this.#log.warn({ tasks: sessions.busy }, "cancelling running tasks");
      sessions.abort();
      await this.#changes.until(haveRunsEnded, until(stopMarginsMs.cancelledRuns));
    }
    // If a session closed before the result of its task was written, another manager would take the task for an orphan.
    await this.#changes.until(() => this.#workCycle.allWritten || this.#isUnwritable, until(stopMarginsMs.sessions));
    await executors.end();
    this.#ending.abort();
    wakeSignal.notify();
    await this.#serving;
    statistics.report();
    await tracing?.end();
  }

  #beginDraining(): void {
    this.#isDraining = true;
    this.#components.sessions.deferClosing();
    this.#connection.drain();
  }

  #onSessionChange(urgent: boolean): void {
    const { wakeSignal, sessionWatchdog, largeResultWriter, pendingResults, statistics } = this.#components;
    this.#changes.notify();
    this.#releaseSessions();
    sessionWatchdog.sessionsOpened();
    statistics.touch();
    largeResultWriter.acknowledge();
    if (urgent || pendingResults.size >= maxCollectedResults) wakeSignal.notify();
    else wakeSignal.notifyIn(collectMs);
  }

  #onCycle(): void {
    this.#components.largeResultWriter.acknowledge();
    this.#changes.notify();
    this.#releaseSessions();
  }

  /**
   * Closes sessions that exceed the supervisor's grant, and sessions whose closing was deferred. While draining,
   * sessions close only after their results are written: another manager may already serve the table, and would take
   * tasks without a result for orphans.
   */
  #releaseSessions(): void {
    const { sessions, poolScaler } = this.#components;
    if (this.#isDraining && !this.#workCycle.allWritten) return;
    poolScaler.applyGrant();
    sessions.closeDeferred();
  }

  #applySettings(settings: ManagerSettings): void {
    const before = this.#settings;
    this.#settings = settings;
    this.#components.executors.reconfigure();
    if (!this.#connection.isServing || before === null) return;
    this.#connection.reconfigure(settings);
    if (isDeepStrictEqual(before, settings)) return;
    this.#log.info(changedSettings(before, settings), "settings changed");
    if (before.sleepMs !== settings.sleepMs) this.#connection.setApplicationName(settings.sleepMs);
  }

  /**
   * Returns whether the tasks are in this manager's table. If they are not, the supervisor has to replace the manager.
   */
  #checkLocation(location: TableLocation): boolean {
    const { schema, table } = this.#table;
    if (location.schema === schema && location.table === table) return true;
    this.#send({ type: "tableMoved", location });
    return false;
  }

  /** Serves the table. After errors, it tries again at growing intervals. */
  async #serveUntilEnd(): Promise<void> {
    let loggedReason: string | null = null;
    while (!this.#ending.signal.aborted) {
      this.#retry = new AbortController();
      try {
        await this.#connection.serve(() => {
          this.#backoff.reset();
          loggedReason = null;
          this.#isUnwritable = false;
        });
      } catch (error) {
        const reason = toReport(error);
        this.#isUnwritable = reason.code === "SCHEMA_MOVED" || refusedLogin.test(reason.sqlState ?? "");
        this.#changes.notify();
        const pauseMs = this.#backoff.next();
        // The end of the manager also ends its attempt to connect. The error of that is no news.
        const isEndedAttempt = this.#ending.signal.aborted && reason.code === "CONNECTION_FAILED";
        // A reason is logged once, not again at each attempt that fails for the same reason.
        if (!isEndedAttempt && loggedReason !== reason.message) {
          loggedReason = reason.message;
          this.#log.warn({ code: reason.code, reason: reason.message, pauseMs }, "manager unavailable, retrying");
        }
        if (!isEndedAttempt) this.#send({ type: "unavailable", reason });
        if (this.#isFinished()) break;
        const signal = AbortSignal.any([this.#ending.signal, this.#retry.signal]);
        await sleep(pauseMs, signal);
      }
    }
    const { size: tasks } = this.#components.pendingResults;
    if (tasks > 0) this.#log.error({ tasks }, "results not written, the next start settles these tasks");
  }

  /** Returns whether nothing runs any more and all results have been written or given up. */
  #isFinished(): boolean {
    if (!this.#ending.signal.aborted) return false;
    const { size, rejectedCount } = this.#components.pendingResults;
    const writable = size - rejectedCount;
    const isOverdue = performance.now() >= this.#deadline + stopMarginsMs.results;
    return writable === 0 || isOverdue || this.#isUnwritable || this.#finalWriteDeadline.isOver(writable);
  }
}

/**
 * SQLSTATEs with which a server refuses a login until somebody acts: the password is wrong, or the role or the database
 * does not exist.
 */
const refusedLogin = /^(?:28|3D)/;

const maxPauseMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

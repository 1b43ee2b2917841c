import { Backoff, longestTimerMs, sleep } from "../shared/backoff.js";
import type { Entry } from "../shared/config/types.js";
import { toReport } from "../shared/errors.js";
import type { ManagerParameters } from "../shared/ipc/managerMessages.js";
import type { LifecycleHooks } from "../shared/lifecycle.js";
import { timeoutSignal } from "../shared/timeoutSignal.js";
import { stopMarginsMs } from "../shared/tuning.js";
import { ManagerComponents, type ManagerOptions } from "./loop/components.js";
import { ManagerConnection } from "./loop/managerConnection.js";
import { WorkCycle } from "./loop/workCycle.js";
import { collectMs, maxCollectedResults } from "./model/tuning.js";

/** How long the manager, at its end, waits for progress in writing results, in ms. */
const finalWriteMs = 5_000;

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
  readonly #components: ManagerComponents;
  readonly #workCycle: WorkCycle;
  readonly #connection: ManagerConnection;
  readonly #takesOver: boolean;
  readonly #backoff: Backoff;
  /** The fewest results left to write at the end, and when they are given up unless they become fewer. */
  #fewestWritable = Infinity;
  #giveUpAt = 0;
  /**
   * Aborted to start the next attempt to serve without a delay. This can happen while the previous attempt is still
   * under way.
   */
  #retry = new AbortController();
  /** The last reason for which the table was not served. Null since a cycle has succeeded. */
  #loggedReason: string | null = null;
  /**
   * Whether the server refuses the manager's login, as after a change of the password, or the table has another name now.
   * A manager that ends then does not wait until it can write its results: the next one, with the new password or name,
   * settles these tasks.
   */
  #isUnwritable = false;
  /** The time at which running tasks are cancelled, as a value of performance.now(). */
  #deadline = 0;
  #serving: Promise<void> = Promise.resolve();

  constructor(parameters: ManagerParameters, options: ManagerOptions) {
    this.#components = new ManagerComponents(parameters, options, {
      sessionChanged: (urgent) => this.#onSessionChange(urgent),
      serverMoved: (reason) => this.#connection.leave(reason),
      objectMissing: () => this.#connection.restoreObjects(),
    });
    this.#workCycle = new WorkCycle(this.#components);
    this.#connection = new ManagerConnection(this.#components, {
      workCycle: this.#workCycle,
      cycled: () => this.#onCycle(),
      isFinished: () => this.#isFinished(),
      memory: parameters.memory ?? null,
    });
    this.#takesOver = parameters.takesOver;
    this.#backoff = new Backoff({ firstMs: 100, maxMs: maxPauseMs(parameters.entry), calmMs: 1_000 });
  }

  grant(sessions: number, number: number): void {
    this.#components.poolScaler.grant(sessions, number);
    this.#releaseSessions();
    this.#components.wakeSignal.notify();
  }

  /** Applies new parameters and the server's current settings. */
  reconfigure({ entry, managers, administrator = null }: Omit<ManagerParameters, "takesOver" | "afterFrozen">): void {
    const { log, send, threadLog } = this.#components;
    this.#components.entry = entry;
    this.#components.managers = managers;
    this.#components.administrator = administrator;
    log.level = threadLog.level = entry.parameters["pg_conf.log"];
    this.#backoff.limit(maxPauseMs(entry));
    this.#backoff.reset();
    this.#retry.abort();
    if (this.#connection.isServing) this.#connection.reload();
    else send({ type: "reconfigured" });
  }

  /** Starts the next attempt to connect without further delay, because the server accepts connections again. */
  retry(): void {
    this.#retry.abort();
  }

  acceptSleep(): void {
    this.#connection.acceptSleep();
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
    const { changes, sessions } = this.#components;
    await changes.until(() => !this.#connection.mayClaim && sessions.busy === 0, signal);
  }

  /** Cancels running tasks, which return to `PLAN`. The connection is closed last. */
  async stop(): Promise<void> {
    const { changes, ending, executors, log, sessions, statistics, tracing, wakeSignal } = this.#components;
    this.#beginDraining();
    this.#deadline = Math.max(this.#deadline, performance.now());
    const until = (beyondMs: number): AbortSignal => {
      const leftMs = Math.max(0, Math.ceil(this.#deadline + beyondMs - performance.now()));
      return timeoutSignal(Math.min(leftMs, longestTimerMs));
    };
    const haveRunsEnded = (): boolean => sessions.busy === 0;
    // The tasks of a claim whose answer is under way are not known yet. They are cancelled, too.
    await changes.until(() => !this.#connection.mayClaim, until(stopMarginsMs.cancelledRuns));
    if (!haveRunsEnded()) {
      log.warn({ tasks: sessions.busy }, "cancelling running tasks");
      sessions.abort();
      await changes.until(haveRunsEnded, until(stopMarginsMs.cancelledRuns));
    }
    // If a session closed before the result of its task was written, another manager would take the task for an orphan.
    await changes.until(() => this.#workCycle.allWritten || this.#isUnwritable, until(stopMarginsMs.sessions));
    await executors.end();
    ending.abort();
    wakeSignal.notify();
    await this.#serving;
    statistics.report();
    await tracing?.end();
  }

  #beginDraining(): void {
    const { pendingResults, sessions, wakeSignal } = this.#components;
    this.#components.isDraining = true;
    sessions.deferClosing();
    // Rejected rows are tried once more, but the manager does not wait for them.
    pendingResults.requeueDeferred(Infinity);
    wakeSignal.notify();
  }

  #onSessionChange(urgent: boolean): void {
    const { changes, wakeSignal, sessionWatchdog, largeResultWriter, pendingResults, statistics } = this.#components;
    changes.notify();
    this.#releaseSessions();
    sessionWatchdog.sessionsOpened();
    statistics.touch();
    largeResultWriter.acknowledge();
    if (urgent || pendingResults.size >= maxCollectedResults) wakeSignal.notify();
    else wakeSignal.notifyIn(collectMs);
  }

  #onCycle(): void {
    this.#backoff.reset();
    this.#loggedReason = null;
    this.#isUnwritable = false;
    this.#components.largeResultWriter.acknowledge();
    this.#components.changes.notify();
    this.#releaseSessions();
  }

  /**
   * Closes sessions that exceed the supervisor's grant, and sessions whose closing was deferred. While draining,
   * sessions close only after their results are written: another manager may already serve the table, and would take
   * tasks without a result for orphans.
   */
  #releaseSessions(): void {
    const { sessions, poolScaler } = this.#components;
    if (this.#components.isDraining && !this.#workCycle.allWritten) return;
    poolScaler.applyGrant();
    sessions.closeDeferred();
  }

  /** Serves the table. After errors, it tries again at growing intervals. */
  async #serveUntilEnd(): Promise<void> {
    const { changes, ending, log, pendingResults, send } = this.#components;
    while (!ending.signal.aborted) {
      this.#retry = new AbortController();
      try {
        await this.#connection.serve();
      } catch (error) {
        const reason = toReport(error);
        this.#isUnwritable = reason.code === "SCHEMA_MOVED" || refusedLogin.test(reason.sqlState ?? "");
        changes.notify();
        const pauseMs = this.#backoff.next();
        // The end of the manager also ends its attempt to connect. The error of that is no news.
        const isEndedAttempt = ending.signal.aborted && reason.code === "CONNECTION_FAILED";
        // A reason is logged once, not again at each attempt that fails for the same reason.
        if (!isEndedAttempt && this.#loggedReason !== reason.message) {
          this.#loggedReason = reason.message;
          log.warn({ code: reason.code, reason: reason.message }, "manager unavailable, retrying");
        }
        if (!isEndedAttempt) send({ type: "unavailable", reason });
        if (this.#isFinished()) break;
        await sleep(pauseMs, AbortSignal.any([ending.signal, this.#retry.signal]));
      }
    }
    const { size: tasks } = pendingResults;
    if (tasks > 0) log.error({ tasks }, "results not written, the next start settles these tasks");
  }

  /** Returns whether nothing runs any more and all results have been written or given up. */
  #isFinished(): boolean {
    if (!this.#components.ending.signal.aborted) return false;
    const { size, rejectedCount } = this.#components.pendingResults;
    const writable = size - rejectedCount;
    if (writable === 0 || this.#isUnwritable) return true;
    const now = performance.now();
    if (writable < this.#fewestWritable) {
      this.#fewestWritable = writable;
      this.#giveUpAt = now + finalWriteMs;
    }
    return now >= this.#giveUpAt || now >= this.#deadline + stopMarginsMs.results;
  }
}

/**
 * SQLSTATEs with which a server refuses a login until somebody acts: the password is wrong, or the role or the database
 * does not exist.
 */
const refusedLogin = /^(?:28|3D)/;

const maxPauseMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import type { ErrorReport } from "../../shared/errors.js";
import type { ExecutorThreads } from "./executorThreads.js";
import type { RunTimes } from "./runTimes.js";
import type { SessionPool } from "./sessionPool.js";
import { lockClasses, sqlStateToLockKey } from "../../shared/postgres/advisoryLocks.js";
import { ShownLocks } from "../sql/shownLocks.sql.js";
import {
  computeSessions,
  exclusiveSessions,
  maxLookAhead,
  maxSessionIdleMs,
  maxShortRunSessions,
  samplesPerSession,
  serverFullReportMs,
  sessionsPerRunMs,
  shortMedianMs,
} from "../model/tuning.js";

interface PoolScalerOptions {
  readonly sessions: SessionPool;
  readonly executors: ExecutorThreads;
  readonly runTimes: RunTimes;
  readonly send: (message: Extract<FromManager, { type: "demand" | "serverFull" | "grantAnswered" }>) => void;
  /** Maximum delay before sessions are opened again after some failed to open, in ms. */
  readonly maxPauseMs: () => number;
  /** Returns how many of the server's available connections may be used for sessions. */
  readonly sessionShare: (client: Client) => Promise<number>;
  /** Returns the share of exclusive tasks among those that were claimed recently, 0 to 1. */
  readonly exclusiveShare: () => number;
  /** Returns how many free sessions are kept from the tasks that are due (`SessionReserve`). */
  readonly keptSessions: () => number;
  readonly log: Log;
}

/**
 * Scales the session pool to the number of sessions that tasks could use. The number is limited by the supervisor's
 * grant and by the server's connection capacity. In deep sleep (nothing to do) there are no sessions.
 */
export class PoolScaler {
  readonly #options: PoolScalerOptions;
  readonly #backoff = new Backoff({ firstMs: 100, maxMs: Infinity });
  #granted = 0;
  #grantNumber = 0;
  #demanded = 0;
  #grantAnswered = true;
  #reportedFull = false;
  #fullReportedAt = -Infinity;
  /** No session is opened before this time, on the process's clock. */
  #notBefore = 0;
  /** Whether a session of the last batch failed to open. */
  #openFailed = false;
  /** Whether the server had fewer connections left than were wanted when sessions were last to be opened. */
  #isFull = false;
  #failureLogged = false;
  /** Why the last session failed to open. Shown while `failureLogged`. */
  #failure: Pick<ErrorReport, "sqlState"> = {};
  readonly #shownRefusal: ShownLocks;

  constructor(options: PoolScalerOptions) {
    this.#options = options;
    this.#shownRefusal = new ShownLocks(lockClasses.sessionsRefused, "refused sessions", options.log);
  }

  /** Sets how many sessions there may be from now on. The caller then has to call `applyGrant`. */
  grant(sessions: number, number: number): void {
    this.#granted = sessions;
    this.#grantNumber = number;
    this.#grantAnswered = false;
  }

  /** Closes free sessions beyond the grant. Once no more sessions than granted are open, answers the supervisor. */
  applyGrant(): void {
    const { size, closing } = this.#options.sessions;
    if (size > this.#granted) this.#options.sessions.closeFree(size - closing - this.#granted);
    else if (!this.#grantAnswered) {
      this.#grantAnswered = true;
      this.#options.send({ type: "grantAnswered", sessions: size, number: this.#grantNumber });
    }
  }

  /** Whether another session may be opened, as far as is known here. The supervisor or the server may still refuse. */
  get canGrow(): boolean {
    const { size } = this.#options.sessions;
    const granted = size < this.#granted || (size === this.#granted && this.#demanded <= size);
    return granted && this.pauseMs === null;
  }

  /** Whether no more sessions can be opened at the moment, as far as is known. */
  get isAtLimit(): boolean {
    return this.#options.sessions.size >= this.#granted || this.#isFull || this.pauseMs !== null;
  }

  /** Key figures for diagnostics. */
  get state(): Readonly<Record<string, number | boolean | null>> {
    const { lookAhead, pauseMs } = this;
    return { granted: this.#granted, demanded: this.#demanded, lookAhead, pauseMs };
  }

  /** How many tasks beyond the number of free sessions a claim should look for. */
  get lookAhead(): number {
    const max = this.#hasShortRuns
      ? Math.max(
          0,
          this.#targetSize + this.#options.sessions.slow + this.#options.keptSessions() - this.#options.sessions.size,
        )
      : maxLookAhead;
    if (this.#options.sessions.size >= this.#granted && this.#hasMaxDemand) return 0;
    return Math.min(max, maxLookAhead);
  }

  /** Whether one more session could be given a task: either an unused session, or a session that may be opened. */
  get canUseMore(): boolean {
    if (this.usableSessions === 0) return false;
    if (this.#options.sessions.free > 0) return this.#options.sessions.hasUnused;
    if (performance.now() < this.#notBefore) return false;
    return this.#options.sessions.size < this.#granted || !this.#hasMaxDemand;
  }

  get #hasMaxDemand(): boolean {
    return this.#demanded >= this.#options.sessions.size + maxLookAhead;
  }

  /** How many more sessions may get tasks. While runs are short, only a few sessions are useful; the rest stay free. */
  get usableSessions(): number {
    if (!this.#hasShortRuns) return Infinity;
    return Math.max(0, this.#targetSize + this.#options.sessions.slow - this.#options.sessions.busy);
  }

  /**
   * How many sessions are wanted in addition to the slow ones (those with a run that takes longer than expected). If
   * many sessions are slow, as many others are wanted, because further runs may be long too. Exclusive tasks cannot queue
   * behind others, so a session waits for the manager after each of them.
   */
  get #targetSize(): number {
    const exclusive = Math.round(exclusiveSessions * this.#options.exclusiveShare());
    return Math.max(this.#shortRunSessions, exclusive, Math.min(this.#options.sessions.slow, maxShortRunSessions));
  }

  /** How many sessions short runs can use, in addition to the slow sessions. */
  get #shortRunSessions(): number {
    const waiting = Math.ceil(sessionsPerRunMs * this.#options.runTimes.medianMs);
    return Math.min(maxShortRunSessions, Math.max(computeSessions, waiting));
  }

  /** Whether runs are short. They are assumed to be short until there are enough samples. */
  get #hasShortRuns(): boolean {
    return !this.#hasEnoughSamples || this.#options.runTimes.medianMs <= shortMedianMs;
  }

  get #hasEnoughSamples(): boolean {
    return this.#options.runTimes.count() >= samplesPerSession * this.#options.sessions.size;
  }

  /** Handles the failure to open a session: no session is opened for some time. This delay grows with every failure. */
  sessionFailed(reason: Pick<ErrorReport, "message" | "sqlState">): void {
    this.#openFailed = true;
    this.#failure = reason;
    if (!this.#failureLogged) this.#options.log.warn({ reason: reason.message }, "cannot open a session, tasks wait");
    this.#failureLogged = true;
    // All sessions of one batch fail for the same reason, so they cause only one delay.
    if (performance.now() < this.#notBefore) return;
    const pauseMs = Math.min(this.#backoff.next(), this.#options.maxPauseMs());
    this.#notBefore = performance.now() + pauseMs;
    this.#options.log.debug({ pauseMs }, "opening of sessions paused");
  }

  /** Opens sessions, few at first. `more` says how many more tasks could start if there were sessions. */
  async grow(client: Client, more: number): Promise<void> {
    await this.#open(client, more);
    await this.#shownRefusal.show(client, this.#failureLogged ? [sqlStateToLockKey(this.#failure.sqlState)] : []);
  }

  async #open(client: Client, more: number): Promise<void> {
    const { size, opening, free } = this.#options.sessions;
    if (opening > 0 || performance.now() < this.#notBefore) return;
    if (more === 0) {
      // While all sessions are in use, tasks may be waiting in their queues, so the demand must not be lowered.
      if (free <= this.#options.keptSessions() && size > 0) return;
      if (free > 0) this.#logRecovery();
      this.#demand(size);
      return;
    }
    this.#demand(size + more);
    // The first thread is started early, because starting a thread takes longer than getting a grant.
    if (this.#options.executors.threads.size === 0) this.#options.executors.start();
    const wanted = Math.min(more, Math.max(1, size), this.#granted - size);
    if (wanted <= 0) return;
    const count = Math.min(wanted, await this.#options.sessionShare(client));
    this.#isFull = count < wanted;
    if (this.#isFull) this.#reportFull(count);
    this.#openFailed = false;
    this.#options.sessions.open(count);
  }

  /** Closes sessions that have been idle for `idleMs`, except one, and lowers the demand by their number. */
  shrink(idleMs = maxSessionIdleMs): void {
    const { size, closing, opening } = this.#options.sessions;
    this.#options.sessions.closeIdle(idleMs);
    if (opening === 0 && this.#options.sessions.closing > closing) this.#demand(size - this.#options.sessions.closing);
  }

  /** Time until sessions may be opened again, in ms. Null means that they may be opened now. */
  get pauseMs(): number | null {
    const remainingMs = this.#notBefore - performance.now();
    return remainingMs > 0 ? remainingMs : null;
  }

  /** Ends the delay, unless another session of the batch failed: then there is no capacity for more. */
  sessionOpened(): void {
    if (this.#openFailed) return;
    this.#backoff.reset();
    this.#notBefore = 0;
    // At a limit of the server, sessions open and fail by turns. While others are open, the recovery is therefore logged
    // only when no task waits any more.
    if (this.#options.sessions.size - this.#options.sessions.opening === 1) this.#logRecovery();
  }

  /** Closes all sessions, then all threads. */
  async closeAll(): Promise<void> {
    this.#options.sessions.closeFree();
    await this.#options.executors.end();
    this.#demand(0);
    this.#reportedFull = this.#isFull = false;
    this.#failureLogged = false;
  }

  #logRecovery(): void {
    if (this.#failureLogged) this.#options.log.info("the server accepts new sessions again");
    this.#failureLogged = false;
  }

  #demand(sessions: number): void {
    if (sessions === this.#demanded) return;
    this.#demanded = sessions;
    this.#options.send({ type: "demand", sessions });
  }

  #reportFull(capacity: number): void {
    const now = performance.now();
    if (now - this.#fullReportedAt >= serverFullReportMs) {
      this.#fullReportedAt = now;
      this.#options.send({ type: "serverFull", capacity });
    }
    if (this.#reportedFull) return;
    this.#reportedFull = true;
    const { size } = this.#options.sessions;
    this.#options.log.warn({ sessions: size }, "connection limit of the server reached, tasks wait");
  }
}

import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import type { ErrorReport } from "../../shared/errors.js";
import type { ExecutorThreads } from "./executorThreads.js";
import type { RemoteConnectionCapacity } from "./remoteConnectionCapacity.js";
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

interface PoolScalerComponents {
  readonly sessions: SessionPool;
  readonly executors: ExecutorThreads;
  readonly runTimes: RunTimes;
  readonly remoteCapacity: Pick<RemoteConnectionCapacity, "sessionShare">;
  readonly reserve: { readonly kept: number };
  readonly claimer: { readonly exclusiveShare: number };
  /** Maximum delay before sessions are opened again after some failed to open, in ms. */
  readonly restartMs: number;
  readonly send: (message: FromManager) => void;
  readonly log: Log;
}

/**
 * Scales the session pool to the number of sessions that tasks could use. The number is limited by the supervisor's
 * grant and by the server's connection capacity. In deep sleep (nothing to do) there are no sessions.
 */
export class PoolScaler {
  readonly #components: PoolScalerComponents;
  readonly #sessions: SessionPool;
  readonly #backoff = new Backoff({ firstMs: 100, maxMs: Infinity });
  #granted = 0;
  #grantNumber = 0;
  #demanded = 0;
  #grantAnswered = true;
  #reportedFull = false;
  #fullReportedAt = -Infinity;
  #notBefore = 0;
  #openFailed = false;
  /** Whether the server had fewer connections left than were wanted when sessions were last to be opened. */
  #isFull = false;
  #failureLogged = false;
  #failure: Pick<ErrorReport, "sqlState"> = {};
  readonly #shownRefusal: ShownLocks;

  constructor(components: PoolScalerComponents) {
    this.#components = components;
    this.#sessions = components.sessions;
    this.#shownRefusal = new ShownLocks(lockClasses.sessionsRefused, "refused sessions", components.log);
  }

  grant(sessions: number, number: number): void {
    this.#granted = sessions;
    this.#grantNumber = number;
    this.#grantAnswered = false;
  }

  get granted(): number {
    return this.#granted;
  }

  /** Closes free sessions beyond the grant. Once no more sessions than granted are open, answers the supervisor. */
  applyGrant(): void {
    const { size, closing } = this.#sessions;
    if (size > this.#granted) this.#sessions.closeFree(size - closing - this.#granted);
    else if (!this.#grantAnswered) {
      this.#grantAnswered = true;
      this.#components.send({ type: "grantAnswered", sessions: size, number: this.#grantNumber });
    }
  }

  /** Whether another session may be opened, as far as is known here. The supervisor or the server may still refuse. */
  get canGrow(): boolean {
    const { size } = this.#sessions;
    const granted = size < this.#granted || (size === this.#granted && this.#demanded <= size);
    return granted && this.pauseMs === null;
  }

  get isAtLimit(): boolean {
    return this.#sessions.size >= this.#granted || this.#isFull || this.pauseMs !== null;
  }

  get state(): Readonly<Record<string, number | boolean | null>> {
    const { lookAhead, pauseMs } = this;
    return { granted: this.#granted, demanded: this.#demanded, lookAhead, pauseMs };
  }

  /** Whether all granted sessions are there, and the supervisor knows that many more are wanted. */
  get isDemandKnown(): boolean {
    return this.#sessions.size >= this.#granted && this.#hasMaxDemand;
  }

  /** How many tasks beyond the number of free sessions a claim should look for. */
  get lookAhead(): number {
    if (this.isDemandKnown) return 0;
    if (!this.#hasShortRuns) return maxLookAhead;
    const wanted = this.#targetSize + this.#sessions.slow + this.#components.reserve.kept - this.#sessions.laneSize;
    return Math.min(Math.max(0, wanted), maxLookAhead);
  }

  /** Whether one more session could be given a task: either an unused session, or a session that may be opened. */
  get canUseMore(): boolean {
    if (this.usableSessions === 0) return false;
    if (this.#sessions.free > 0) return this.#sessions.hasUnused;
    if (performance.now() < this.#notBefore) return false;
    return this.#sessions.size < this.#granted || !this.#hasMaxDemand;
  }

  get #hasMaxDemand(): boolean {
    return this.#demanded >= this.#sessions.size + maxLookAhead;
  }

  /** How many more sessions may get tasks. While runs are short, only a few are useful. */
  get usableSessions(): number {
    if (!this.#hasShortRuns) return Infinity;
    return Math.max(0, this.#targetSize + this.#sessions.slow - this.#sessions.laneBusy);
  }

  /**
   * How many sessions are wanted in addition to the slow ones. If many sessions are slow, as many others are wanted,
   * because further runs may be long too. After an exclusive task, behind which none queues, a session waits for the
   * manager.
   */
  get #targetSize(): number {
    const exclusive = Math.round(exclusiveSessions * this.#components.claimer.exclusiveShare);
    return Math.max(this.#shortRunSessions, exclusive, Math.min(this.#sessions.slow, maxShortRunSessions));
  }

  get #shortRunSessions(): number {
    const waiting = Math.ceil(sessionsPerRunMs * this.#components.runTimes.medianMs);
    return Math.min(maxShortRunSessions, Math.max(computeSessions, waiting));
  }

  /** Whether runs are short. They are assumed to be short until there are enough samples. */
  get #hasShortRuns(): boolean {
    const { runTimes } = this.#components;
    return runTimes.count() < samplesPerSession * this.#sessions.size || runTimes.medianMs <= shortMedianMs;
  }

  /** After a failure, no session is opened for some time, which grows with every failure. */
  sessionFailed(reason: Pick<ErrorReport, "message" | "sqlState">): void {
    this.#openFailed = true;
    this.#failure = reason;
    if (!this.#failureLogged)
      this.#components.log.warn({ reason: reason.message }, "cannot open a session, tasks wait");
    this.#failureLogged = true;
    // All sessions of one batch fail for the same reason, so they cause only one delay.
    if (performance.now() < this.#notBefore) return;
    const pauseMs = Math.min(this.#backoff.next(), this.#components.restartMs);
    this.#notBefore = performance.now() + pauseMs;
    this.#components.log.debug({ pauseMs }, "opening of sessions paused");
  }

  /** Opens sessions, few at first. `more` says how many more tasks could start if there were sessions. */
  async grow(client: Client, more: number): Promise<void> {
    await this.#open(client, more);
    await this.#shownRefusal.show(client, this.#failureLogged ? [sqlStateToLockKey(this.#failure.sqlState)] : []);
  }

  async #open(client: Client, more: number): Promise<void> {
    const { size, opening, free } = this.#sessions;
    if (opening > 0 || performance.now() < this.#notBefore) return;
    if (more === 0) {
      // While all sessions are in use, tasks may be waiting in their queues, so the demand must not be lowered.
      if (free <= this.#components.reserve.kept && size > 0) return;
      if (free > 0) this.#logRecovery();
      this.#demand(size);
      return;
    }
    const count = await this.#roomFor(client, Math.min(more, Math.max(1, size)), more);
    if (count === 0) return;
    this.#openFailed = false;
    this.#sessions.open(count);
  }

  /** With users: how many sessions can be opened for a lane now. Tells the supervisor of all that are wanted. */
  async roomFor(client: Client, { wanted, more }: { readonly wanted: number; readonly more: number }): Promise<number> {
    // While the demand is known, `more` is not counted.
    return this.isDemandKnown ? 0 : await this.#roomFor(client, wanted, more);
  }

  /** How many of the sessions that are wanted now can be opened. `more` is the demand beyond those that there are. */
  async #roomFor(client: Client, wanted: number, more: number): Promise<number> {
    const { executors, remoteCapacity } = this.#components;
    const { size } = this.#sessions;
    this.#demand(size + more);
    // The first thread is started early, because starting a thread takes longer than getting a grant.
    if (executors.threads.size === 0) executors.start();
    const granted = Math.min(wanted, this.#granted - size);
    if (granted <= 0) return 0;
    const count = Math.min(granted, await remoteCapacity.sessionShare(client));
    this.#isFull = count < granted;
    if (this.#isFull) this.#reportFull(count);
    return count;
  }

  /** Closes sessions that have been idle for `idleMs`, except one, and lowers the demand by their number. */
  shrink(idleMs = maxSessionIdleMs): void {
    const { size, closing, opening } = this.#sessions;
    this.#sessions.closeIdle(idleMs);
    if (opening === 0 && this.#sessions.closing > closing) this.#demand(size - this.#sessions.closing);
  }

  get pauseMs(): number | null {
    const remainingMs = this.#notBefore - performance.now();
    return remainingMs > 0 ? remainingMs : null;
  }

  /** Ends the delay, unless another session of the batch failed: then there is no capacity for more. */
  sessionOpened(): void {
    if (this.#openFailed) return;
    this.#backoff.reset();
    this.#notBefore = 0;
    // At a limit of the server, sessions open and fail by turns. While others are open, the recovery is logged only when
    // no task waits any more.
    if (this.#sessions.size - this.#sessions.opening === 1) this.#logRecovery();
  }

  async closeAll(): Promise<void> {
    this.#sessions.closeFree();
    await this.#components.executors.end({ keepsOne: true });
    this.#demand(0);
    this.#reportedFull = this.#isFull = false;
    this.#failureLogged = false;
  }

  #logRecovery(): void {
    if (this.#failureLogged) this.#components.log.info("the server accepts new sessions again");
    this.#failureLogged = false;
  }

  #demand(sessions: number): void {
    if (sessions === this.#demanded) return;
    this.#demanded = sessions;
    this.#components.send({ type: "demand", sessions });
  }

  #reportFull(capacity: number): void {
    const now = performance.now();
    if (now - this.#fullReportedAt >= serverFullReportMs) {
      this.#fullReportedAt = now;
      this.#components.send({ type: "serverFull", capacity });
    }
    if (this.#reportedFull) return;
    this.#reportedFull = true;
    const { size } = this.#sessions;
    this.#components.log.warn({ sessions: size }, "connection limit of the server reached, tasks wait");
  }
}

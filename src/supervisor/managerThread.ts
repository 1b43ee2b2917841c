import type { Worker } from "node:worker_threads";
import { EventEmitter } from "eventemitter3";
import { Backoff, sleep } from "../shared/backoff.js";
import type { Entry, TableLocation } from "../shared/config/types.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import { errorDefinitions } from "../shared/errorCodes.js";
import { errorMessage, fromReport, PgTaskError, toReport, type ErrorReport } from "../shared/errors.js";
import type { HandshakeSender } from "../shared/ipc/handshake.js";
import type { Log } from "../shared/log.js";
import type { FromManager, ManagerParameters, ToManager } from "../shared/ipc/managerMessages.js";
import type { Stall, ManagerStatistics } from "../shared/statistics.js";
import { stopMarginsMs } from "../shared/tuning.js";
import { HeartbeatWatch } from "./heartbeatWatch.js";
import type { RolesAndDatabases } from "./rolesAndDatabases.js";
import type { SpareWorkers } from "./spareWorkers.js";

/**
 * SQLSTATEs that indicate a missing database or role. If the server asks for a password, it reports a missing role as a
 * failed authentication.
 */
const missingRoleOrDatabase = new Set(["3D000", "28000", "28P01"]);

interface ManagerThreadEvents {
  /** The manager serves its table. */
  ready: [];
  /** The manager has lost its connection, or cannot open one. */
  disconnected: [];
  /** The manager cannot serve its table for this reason, and keeps trying. */
  unavailable: [reason: ErrorReport];
  demand: [sessions: number];
  /** The server has capacity for only this many more sessions of the manager. */
  serverFull: [capacity: number];
  /** The manager's answer to the session grant with this number. */
  grantAnswered: [sessions: number, number: number];
  /** The manager is stopping and claims no more tasks. */
  claimingStopped: [];
  /** The manager's counts since its last report. */
  statistics: [statistics: ManagerStatistics];
  /** Due tasks do not start although nothing prevents it. Null means that they start again. */
  stalled: [stall: Stall | null];
  /** No session is open, and none can be opened for this reason. Null means that a session was opened. */
  sessionsRefused: [reason: ErrorReport | null];
  /** The thread has ended, and with it all its sessions. */
  died: [];
}

export interface ManagerThreadOptions {
  /** Creates the entry's role and database if they are missing. */
  readonly rolesAndDatabases: Pick<RolesAndDatabases, "ensure">;
  readonly spareWorkers: Pick<SpareWorkers, "take">;
  /** Whether an earlier manager may have left claimed tasks. */
  readonly takesOver: boolean;
  /** Whether the leader before this process was frozen. */
  readonly afterFrozen: boolean;
  /** Returns how many managers the process has. */
  readonly managers: () => number;
  readonly log: Log;
  /** Receives the thread's log lines. */
  readonly writeLine: (line: string) => void;
}

interface Child {
  readonly worker: Worker;
  readonly sender: HandshakeSender;
  readonly heartbeatWatch: HeartbeatWatch;
  /** Records why the thread is terminated. Only the first recorded reason counts. */
  readonly setReason: (reason: unknown) => void;
}

/**
 * Runs one manager in a thread, and restarts the manager when the thread dies.
 *
 *   ensuring role and database ──▶ thread running ──stop──▶ ended
 *     ▲                              │
 *     └── died: after a delay ───────┤
 *     └── table moved: at once ──────┘
 */
export class ManagerThread extends EventEmitter<ManagerThreadEvents> {
  /**
   * Resolves when the manager first serves its table or first reports that it cannot, or when the manager is stopped.
   */
  readonly settled: Promise<void>;
  /** Resolves when the manager is stopping and claims no more tasks. */
  readonly claimingStopped: Promise<void>;
  readonly #options: ManagerThreadOptions;
  readonly #log: Log;
  readonly #ending = new AbortController();
  /** Delays before a thread that died is restarted, and delays between attempts to create the role or database. */
  readonly #restartBackoff: Backoff;
  readonly #createBackoff: Backoff;
  #entry: Entry;
  /**
   * The table's schema and name according to the server's settings, as last reported by a manager. Null if no manager
   * has reported another location than the entry's.
   */
  #location: TableLocation | null = null;
  /** Whether the thread is stopping because the table's location changed. */
  #isMoving = false;
  #child: Child | null = null;
  #running: Promise<void> = Promise.resolve();
  /** Aborted to skip the current delay, or the next one if an attempt is still under way. */
  #retryNow = new AbortController();
  #isRecreating = false;
  /** Whether the manager is waiting for a connection to its server. */
  #isDisconnected = false;
  /** Whether an earlier manager may have left claimed tasks. */
  #takesOver: boolean;
  #lastLogged: string | null = null;
  #reconfigureWaiters: (() => void)[] = [];

  constructor(entry: Entry, options: ManagerThreadOptions) {
    super();
    this.#entry = entry;
    this.#options = options;
    this.#takesOver = options.takesOver;
    this.#log = options.log;
    this.#restartBackoff = new Backoff({ firstMs: 100, maxMs: maxRestartMs(entry), calmMs: 1_000 });
    this.#createBackoff = new Backoff({ firstMs: 100, maxMs: maxRestartMs(entry) });
    this.claimingStopped = new Promise((resolve) => void this.once("claimingStopped", resolve));
    this.settled = new Promise((resolve) => {
      this.once("ready", resolve);
      this.once("unavailable", () => resolve());
      this.#ending.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  /** Makes the manager retry at once if it waits for its server. Called when the server accepts connections. */
  retryNow(): void {
    if (!this.#isDisconnected) return;
    this.#retryNow.abort();
    this.#post({ type: "retryNow" });
  }

  /** Makes the manager find out whether its connection has been cut. */
  probe(): void {
    if (!this.#isDisconnected) this.#post({ type: "probe" });
  }

  get target(): ConnectionTarget {
    return this.#entry.target;
  }

  start(): void {
    this.#running = this.#keepRunning().finally(() => this.emit("claimingStopped"));
  }

  grant(sessions: number, number: number): void {
    this.#post({ type: "grant", sessions, number });
  }

  /**
   * Passes the parameters of `entry` to the manager, and makes the manager read the server's settings again. The target
   * of `entry` must be unchanged. Resolves when the parameters are in effect, as far as this is possible now, or when
   * the thread has died.
   */
  async reconfigure(entry: Entry): Promise<void> {
    this.#entry = entry;
    for (const backoff of [this.#restartBackoff, this.#createBackoff]) {
      backoff.limit(maxRestartMs(entry));
      backoff.reset();
    }
    this.#retryNow.abort();
    const child = this.#child;
    if (child === null) return;
    const answer = new Promise<void>((resolve) => this.#reconfigureWaiters.push(resolve));
    this.#sendParameters(child, "reconfigure");
    await answer;
  }

  /**
   * Stops the manager. Terminates its thread if stopping takes longer than the grace period plus a margin. If `stop` is
   * called again, the shorter grace period applies.
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
    await child.worker.terminate();
  }

  async #keepRunning(): Promise<void> {
    while (await this.#ensureRoleAndDatabase()) {
      const start = performance.now();
      const reason = await this.#runThread();
      if (this.#ending.signal.aborted) return;
      this.#takesOver = true;
      if (this.#isMoving) {
        this.#isMoving = false;
        this.emit("died");
        continue;
      }
      // The delays become short again only if the thread has lived for long, because a manager that dies again soon has
      // not recovered.
      if (performance.now() - start > maxRestartMs(this.#entry)) this.#restartBackoff.reset();
      const pauseMs = this.#restartBackoff.next();
      this.#log.error({ entry: this.#entry.key, reason: reason.message, pauseMs }, "manager died, restarting");
      this.#setUnavailable(toReport(reason));
      this.emit("died");
      this.#retryNow = new AbortController();
      await this.#pause(pauseMs);
    }
  }

  /**
   * Retries until the role and the database exist.
   *
   * @returns false if the manager was stopped before that.
   */
  async #ensureRoleAndDatabase(): Promise<boolean> {
    while (!this.#ending.signal.aborted) {
      this.#retryNow = new AbortController();
      try {
        await this.#options.rolesAndDatabases.ensure(this.#entry, { isStart: true });
        this.#createBackoff.reset();
        this.#lastLogged = null;
        return !this.#ending.signal.aborted;
      } catch (error) {
        const pauseMs = this.#createBackoff.next();
        this.#logUnavailable(error, { pauseMs });
        this.#setUnavailable(toReport(error));
        await this.#pause(pauseMs);
      }
    }
    return false;
  }

  /** Creates a role or database that was dropped. In the meantime, the manager itself keeps trying to connect. */
  async #recreateRoleAndDatabase(): Promise<void> {
    if (this.#isRecreating) return;
    this.#isRecreating = true;
    try {
      await this.#options.rolesAndDatabases.ensure(this.#entry, { isStart: false });
      this.#lastLogged = null;
    } catch (error) {
      // It is tried again when the manager has failed to connect once more, which depends on the manager's own pauses.
      this.#logUnavailable(error);
    }
    this.#isRecreating = false;
  }

  /** Logs each reason only once rather than at every attempt. */
  #logUnavailable(error: unknown, pause: { readonly pauseMs?: number } = {}): void {
    const { code, message } = toReport(error);
    if (this.#lastLogged === message || this.#ending.signal.aborted) return;
    this.#lastLogged = message;
    this.#log.warn(
      { entry: this.#entry.key, code, reason: message, ...pause },
      "role or database unavailable, retrying",
    );
  }

  #setUnavailable(reason: ErrorReport): void {
    const wasDisconnected = this.#isDisconnected;
    this.#isDisconnected = errorDefinitions[reason.code].family === "CONNECTION";
    if (this.#isDisconnected && !wasDisconnected) this.emit("disconnected");
    this.emit("unavailable", reason);
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, AbortSignal.any([this.#ending.signal, this.#retryNow.signal]));
  }

  /**
   * Runs a thread until it ends.
   *
   * @returns why the thread ended.
   */
  async #runThread(): Promise<PgTaskError> {
    const { worker, sender } = this.#options.spareWorkers.take();
    let reason: PgTaskError | null = null;
    const setReason = (error: unknown): void => {
      reason ??=
        error instanceof PgTaskError
          ? error
          : new PgTaskError("THREAD_DIED", errorMessage(error), {
              cause: error,
            });
    };
    const exited = new Promise<number>((resolve) => worker.once("exit", resolve));
    worker.on("message", (message: FromManager) => {
      this.#receive(message);
      if (message.type !== "stopped") return;
      if (message.reason !== null) setReason(fromReport(message.reason));
      void worker.terminate();
    });
    worker.on("error", setReason);
    const heartbeatWatch = this.#watchHeartbeat(worker, setReason);
    const child: Child = { worker, sender, heartbeatWatch, setReason };
    this.#child = child;
    this.#sendParameters(child, "start");
    const code = await exited;
    heartbeatWatch.stop();
    this.#child = null;
    sender.fail(new PgTaskError("THREAD_DIED", "the thread ended"));
    this.#resolveReconfigure();
    return reason ?? new PgTaskError("THREAD_DIED", `the thread ended with code ${code}`);
  }

  /** Sends the parameters to a thread. Terminates the thread if it does not accept them in time. */
  #sendParameters({ worker, sender, setReason }: Child, type: "start" | "reconfigure"): void {
    const parameters: ManagerParameters = {
      entry: { ...this.#entry, ...this.#location },
      takesOver: this.#takesOver,
      managers: this.#options.managers(),
      afterFrozen: this.#options.afterFrozen,
    };
    sender
      .send(
        parameters,
        (handover) => worker.postMessage({ type, ...handover } satisfies ToManager),
        this.#entry.parameters["pg_conf.close"],
      )
      .catch(async (error: unknown) => {
        setReason(error);
        await worker.terminate();
      });
  }

  /**
   * Replaces the thread because its table has a new location. The thread stops now. When its tasks have ended or its
   * grace period is over, a new thread serves the new location.
   */
  #moveTo(location: TableLocation): void {
    this.#location = location;
    if (this.#isMoving) return;
    this.#isMoving = true;
    const { key, parameters } = this.#entry;
    this.#log.info({ entry: key, ...location }, "table location changed, replacing the manager");
    this.#post({ type: "stop", graceMs: parameters["pg_conf.grace"] });
  }

  /** Terminates a thread if its event loop is blocked. */
  #watchHeartbeat(worker: Worker, setReason: Child["setReason"]): HeartbeatWatch {
    const limitMs = this.#entry.parameters["pg_conf.close"];
    return new HeartbeatWatch(worker, {
      limitMs,
      ask: () => worker.postMessage({ type: "heartbeat" } satisfies ToManager),
      onFreeze: () => {
        setReason(new PgTaskError("THREAD_DIED", `no heartbeat for ${limitMs} ms`));
        void worker.terminate();
      },
    });
  }

  #resolveReconfigure(): void {
    for (const resolve of this.#reconfigureWaiters.splice(0)) resolve();
  }

  #receive(message: FromManager): void {
    switch (message.type) {
      case "ready":
        this.#isDisconnected = false;
        this.emit("ready");
        break;
      case "unavailable":
        this.#setUnavailable(message.reason);
        if (missingRoleOrDatabase.has(message.reason.sqlState ?? "")) void this.#recreateRoleAndDatabase();
        break;
      case "demand":
        this.emit("demand", message.sessions);
        return;
      case "serverFull":
        this.emit("serverFull", message.capacity);
        break;
      case "grantAnswered":
        this.emit("grantAnswered", message.sessions, message.number);
        break;
      case "tableMoved":
        this.#moveTo(message.location);
        break;
      case "claimingStopped":
        this.emit("claimingStopped");
        break;
      case "reconfigured":
        this.#resolveReconfigure();
        break;
      case "statistics":
        this.emit("statistics", message);
        break;
      case "stalled":
        this.emit("stalled", message.stall);
        break;
      case "sessionsRefused":
        this.emit("sessionsRefused", message.reason);
        break;
      case "heartbeat":
        this.#child?.heartbeatWatch.answer();
        return;
      case "log":
        this.#options.writeLine(message.line);
        break;
      case "stopped":
        break;
    }
  }

  #post(message: ToManager): void {
    this.#child?.worker.postMessage(message);
  }
}

const maxRestartMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

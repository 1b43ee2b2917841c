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
  ready: [];
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
  readonly rolesAndDatabases: Pick<RolesAndDatabases, "ensure">;
  readonly spareWorkers: Pick<SpareWorkers, "take">;
  readonly managers: () => number;
  readonly log: Log;
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
  /** Resolves when the manager first serves its table or first reports that it cannot, or when it is stopped. */
  readonly settled: Promise<void>;
  readonly claimingStopped: Promise<void>;
  readonly #options: ManagerThreadOptions;
  readonly #log: Log;
  readonly #ending = new AbortController();
  /** Delays before a thread that died is restarted, and delays between attempts to create the role or database. */
  readonly #restartBackoff: Backoff;
  readonly #createBackoff: Backoff;
  #entry: Entry;
  /** Where the table is according to the server's settings. Null if no manager has reported another place. */
  #location: TableLocation | null = null;
  #isMoving = false;
  #child: Child | null = null;
  #running: Promise<void> = Promise.resolve();
  /** Aborted to skip the current delay, or the next one if an attempt is still under way. */
  #retryNow = new AbortController();
  #isRecreating = false;
  #isDisconnected = false;
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

  /** Retries until the role and the database exist. Returns false if the manager was stopped before that. */
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

  /** Runs a thread until it ends. Returns why it ended. */
  async #runThread(): Promise<PgTaskError> {
    const { worker, sender } = this.#options.spareWorkers.take();
    let reason: PgTaskError | null = null;
    const setReason = (error: unknown): void => {
      const known = error instanceof PgTaskError ? error : null;
      reason ??= known ?? new PgTaskError("THREAD_DIED", errorMessage(error), { cause: error });
    };
    const exited = new Promise<number>((resolve) => worker.once("exit", resolve));
    worker.on("message", (message: FromManager) => {
      if (message.type !== "stopped") return this.#receive(message);
      if (message.reason !== null) setReason(fromReport(message.reason));
      void worker.terminate();
    });
    worker.on("error", setReason);
    const limitMs = this.#entry.parameters["pg_conf.close"];
    const heartbeatWatch = new HeartbeatWatch(worker, {
      limitMs,
      ask: () => worker.postMessage({ type: "heartbeat" } satisfies ToManager),
      onFreeze: () => {
        setReason(new PgTaskError("THREAD_DIED", `no heartbeat for ${limitMs} ms`));
        void worker.terminate();
      },
    });
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

  /** Terminates the thread if it does not accept the parameters in time. */
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
        this.emit("ready");
        break;
      case "unavailable":
        this.#setUnavailable(message.reason);
        if (missingRoleOrDatabase.has(message.reason.sqlState ?? "")) void this.#recreateRoleAndDatabase();
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
      case "heartbeat":
        this.#child?.heartbeatWatch.answer();
        break;
      case "log":
        this.#options.writeLine(message.line);
        break;
      default:
        this.emit("message", message);
    }
  }

  #post(message: ToManager): void {
    this.#child?.worker.postMessage(message);
  }
}

const maxRestartMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

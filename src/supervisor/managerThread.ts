import type { Worker } from "node:worker_threads";
import { EventEmitter } from "eventemitter3";
import { Backoff, sleep } from "../shared/backoff.js";
import type { ConnectionTarget, Entry, TableLocation } from "../shared/config/types.js";
import {
  errorKinds,
  fromReport,
  PgTaskError,
  toReport,
  type ErrorReport,
} from "../shared/errors.js";
import type { HandshakeSender } from "../shared/ipc/handshake/sender.js";
import { watchHeartbeat } from "../shared/ipc/heartbeat.js";
import type { Log } from "../shared/log.js";
import type { FromManager, ManagerParameters, ToManager } from "../shared/ipc/messages.js";
import type { Stall } from "../shared/stall.js";
import type { ManagerStatistics } from "../shared/statistics.js";
import type { RolesAndDatabases } from "./rolesAndDatabases.js";
import type { SpareWorkers } from "./spareWorkers.js";

/** No such database; no such role, which the server says less clearly where it asks for a password. */
const accountMissing = new Set(["3D000", "28000", "28P01"]);

/** How long a manager that was told to stop may take beyond its grace, in ms. */
const beyondGraceMs = 4_000;

interface ManagerThreadEvents {
  /** It serves its table. */
  ready: [];
  /** It does not, for this reason, and tries again by itself. */
  waiting: [reason: ErrorReport];
  demand: [sessions: number];
  full: [room: number];
  /** Its answer to the grant of that number. */
  held: [sessions: number, number: number];
  /** It was told to stop and claims nothing more. */
  released: [];
  /** What it did since the last time. */
  statistics: [statistics: ManagerStatistics];
  /** Due tasks are not taken, or are again. */
  stalled: [stall: Stall | null];
  /** Its thread ended, and all its sessions with it. */
  died: [];
}

export interface ManagerThreadOptions {
  /** Makes its role and database. */
  readonly accounts: Pick<RolesAndDatabases, "ensure">;
  readonly spare: Pick<SpareWorkers, "take">;
  /** Whether somebody before it may have left tasks. */
  readonly takesOver: boolean;
  readonly log: Log;
  /** Gets the thread's own log lines. */
  readonly writeLine: (line: string) => void;
}

interface Child {
  readonly worker: Worker;
  readonly sender: HandshakeSender;
  /** Says why it is ended; the first reason counts. */
  readonly blame: (reason: unknown) => void;
}

/** One manager in a thread of its own, started again whenever it dies. */
export class ManagerThread extends EventEmitter<ManagerThreadEvents> {
  /** Resolves when it has said for the first time whether it serves or waits, or was told to end. */
  readonly answered: Promise<void>;
  /** Resolves when it claims nothing more, after it was told to stop. */
  readonly released: Promise<void>;
  readonly #options: ManagerThreadOptions;
  readonly #log: Log;
  readonly #ending = new AbortController();
  /** Pauses after deaths of the thread, and while its role or database cannot be made. */
  readonly #deaths: Backoff;
  readonly #refusals: Backoff;
  #entry: Entry;
  /** Where the server says that its tasks are, once a manager has asked. */
  #place: TableLocation | null = null;
  /** Its thread is told to end since the tasks are elsewhere. */
  #moving = false;
  #child: Child | null = null;
  #running: Promise<void> = Promise.resolve();
  /** Aborted when the next try need not wait, also while the one before it is still under way. */
  #retry = new AbortController();
  #mending = false;
  /** Whether it waits for its server to let it in. */
  #outside = false;
  /** Whether a manager before it may have left tasks. */
  #takesOver: boolean;
  #said: string | null = null;
  #whenReconfigured: (() => void)[] = [];

  constructor(entry: Entry, options: ManagerThreadOptions) {
    super();
    this.#entry = entry;
    this.#options = options;
    this.#takesOver = options.takesOver;
    this.#log = options.log;
    this.#deaths = new Backoff({ firstMs: 100, maxMs: longestPauseMs(entry), calmMs: 1_000 });
    this.#refusals = new Backoff({ firstMs: 100, maxMs: longestPauseMs(entry) });
    this.released = new Promise((resolve) => void this.once("released", resolve));
    this.answered = new Promise((resolve) => {
      this.once("ready", resolve);
      this.once("waiting", () => resolve());
      this.#ending.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  /** Its server has just let somebody in: if it waits for that, it tries again at once. */
  retry(): void {
    if (!this.#outside) return;
    this.#retry.abort();
    this.#tell({ type: "retry" });
  }

  get target(): ConnectionTarget {
    return this.#entry.target;
  }

  start(): void {
    this.#running = this.#keepRunning().finally(() => this.emit("released"));
  }

  grant(sessions: number, number: number): void {
    this.#tell({ type: "grant", sessions, number });
  }

  /**
   * Gives it the parameters of `entry`, whose target is the same, and has it read the server's
   * settings anew. Resolves when it goes by them as far as it can now, or has died.
   */
  async reconfigure(entry: Entry): Promise<void> {
    this.#entry = entry;
    for (const backoff of [this.#deaths, this.#refusals]) {
      backoff.limit(longestPauseMs(entry));
      backoff.reset();
    }
    this.#retry.abort();
    const child = this.#child;
    if (child === null) return;
    const answer = new Promise<void>((resolve) => this.#whenReconfigured.push(resolve));
    this.#hand(child, "reconfigure");
    await answer;
  }

  /** Ends the manager within its grace and a little more, else its thread. Asked again, the shorter grace holds. */
  async stop(graceMs: number): Promise<void> {
    this.#ending.abort();
    this.#tell({ type: "stop", graceMs });
    const late = new AbortController();
    const ended = this.#running.finally(() => late.abort());
    if (await sleep(graceMs + beyondGraceMs, late.signal)) {
      await this.#giveUp();
    }
    await ended;
  }

  async #giveUp(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#child = null;
    this.#log.error({ entry: this.#entry.key }, "manager does not stop, its thread is ended");
    await child.worker.terminate();
  }

  async #keepRunning(): Promise<void> {
    while (await this.#prepare()) {
      const start = performance.now();
      const reason = await this.#live();
      if (this.#ending.signal.aborted) return;
      this.#takesOver = true;
      if (this.#moving) {
        this.#moving = false;
        this.emit("died");
        continue;
      }
      // One that works and soon dies again has not recovered.
      if (performance.now() - start > longestPauseMs(this.#entry)) this.#deaths.reset();
      const pauseMs = this.#deaths.next();
      this.#log.error(
        { entry: this.#entry.key, reason: reason.message, pauseMs },
        "manager died, it is started again",
      );
      this.#wait(toReport(reason));
      this.emit("died");
      this.#retry = new AbortController();
      await this.#pause(pauseMs);
    }
  }

  /** Makes the role and the database it needs, as often as that takes; false when told to end before. */
  async #prepare(): Promise<boolean> {
    while (!this.#ending.signal.aborted) {
      this.#retry = new AbortController();
      try {
        await this.#options.accounts.ensure(this.#entry);
        this.#refusals.reset();
        this.#said = null;
        return !this.#ending.signal.aborted;
      } catch (error) {
        this.#sayWaiting(error);
        this.#wait(toReport(error));
        await this.#pause(this.#refusals.next());
      }
    }
    return false;
  }

  /** Its role or its database may be gone: the manager itself tries again all the time. */
  async #mend(): Promise<void> {
    if (this.#mending) return;
    this.#mending = true;
    try {
      await this.#options.accounts.ensure(this.#entry);
      this.#said = null;
    } catch (error) {
      this.#sayWaiting(error);
    }
    this.#mending = false;
  }

  /** One line for each change of state, not for each try. */
  #sayWaiting(error: unknown): void {
    const { code, message } = toReport(error);
    if (this.#said === message || this.#ending.signal.aborted) return;
    this.#said = message;
    this.#log.warn({ entry: this.#entry.key, code, reason: message }, "entry waits");
  }

  #wait(reason: ErrorReport): void {
    this.#outside = errorKinds[reason.code].family === "CONNECTION";
    this.emit("waiting", reason);
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, AbortSignal.any([this.#ending.signal, this.#retry.signal]));
  }

  /** From the thread's start to its end, for whatever reason. */
  async #live(): Promise<PgTaskError> {
    const { worker, sender, heart } = this.#options.spare.take();
    let reason: PgTaskError | null = null;
    const blame = (error: unknown): void => {
      reason ??=
        error instanceof PgTaskError
          ? error
          : new PgTaskError("THREAD_DIED", error instanceof Error ? error.message : String(error), {
              cause: error,
            });
    };
    const exited = new Promise<number>((resolve) => worker.once("exit", resolve));
    worker.on("message", (message: FromManager) => {
      this.#receive(message);
      if (message.type !== "stopped") return;
      if (message.reason !== null) blame(fromReport(message.reason));
      void worker.terminate();
    });
    worker.on("error", blame);
    const child: Child = { worker, sender, blame };
    this.#child = child;
    this.#hand(child, "start");
    const forget = this.#watch(child, heart);
    const code = await exited;
    forget();
    this.#child = null;
    sender.fail(new PgTaskError("THREAD_DIED", "the thread ended"));
    this.#reconfigured();
    return reason ?? new PgTaskError("THREAD_DIED", `the thread ended with code ${code}`);
  }

  /** Hands the parameters over; a thread that does not take them in time is ended. */
  #hand({ worker, sender, blame }: Child, type: "start" | "reconfigure"): void {
    const parameters: ManagerParameters = {
      entry: { ...this.#entry, ...this.#place },
      takesOver: this.#takesOver,
    };
    sender
      .send(
        parameters,
        (reference) => worker.postMessage({ type, ...reference } satisfies ToManager),
        this.#entry.parameters["pg_conf.close"],
      )
      .catch(async (error: unknown) => {
        blame(error);
        await worker.terminate();
      });
  }

  /** Another thread takes over there as soon as this one's tasks have ended, or its grace. */
  #move(place: TableLocation): void {
    this.#place = place;
    if (this.#moving) return;
    this.#moving = true;
    const { key, parameters } = this.#entry;
    this.#log.info({ entry: key, ...place }, "manager moves to where the server says");
    this.#tell({ type: "stop", graceMs: parameters["pg_conf.grace"] });
  }

  /** Ends a thread whose event loop stands still; returns what ends the watch. */
  #watch({ worker, blame }: Child, heart: SharedArrayBuffer): () => void {
    const limitMs = this.#entry.parameters["pg_conf.close"];
    return watchHeartbeat(heart, limitMs, () => {
      blame(new PgTaskError("THREAD_DIED", `the thread gave no sign of life for ${limitMs} ms`));
      void worker.terminate();
    });
  }

  #reconfigured(): void {
    for (const resolve of this.#whenReconfigured.splice(0)) resolve();
  }

  #receive(message: FromManager): void {
    switch (message.type) {
      case "ready":
        this.#outside = false;
        this.emit("ready");
        break;
      case "waiting":
        this.#wait(message.reason);
        if (accountMissing.has(message.reason.sqlState ?? "")) void this.#mend();
        break;
      case "demand":
        this.emit("demand", message.sessions);
        return;
      case "full":
        this.emit("full", message.room);
        break;
      case "held":
        this.emit("held", message.sessions, message.number);
        break;
      case "moved":
        this.#move(message.place);
        break;
      case "released":
        this.emit("released");
        break;
      case "reconfigured":
        this.#reconfigured();
        break;
      case "statistics":
        this.emit("statistics", message);
        break;
      case "stalled":
        this.emit("stalled", message.stall);
        break;
      case "log":
        this.#options.writeLine(message.line);
        break;
      case "stopped":
        break;
    }
  }

  #tell(message: ToManager): void {
    this.#child?.worker.postMessage(message);
  }
}

const longestPauseMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

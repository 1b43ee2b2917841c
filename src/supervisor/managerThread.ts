import { Worker } from "node:worker_threads";
import { EventEmitter } from "eventemitter3";
import { Backoff, pause } from "../shared/backoff.js";
import type { Entry } from "../shared/config/types.js";
import { fromReport, PgTaskError, type ErrorReport } from "../shared/errors.js";
import { HandshakeSender } from "../shared/handshake/sender.js";
import type { Log } from "../shared/log.js";
import type {
  FromManager,
  ManagerParameters,
  ManagerThreadData,
  ToManager,
} from "../shared/messages.js";

const entryFile = new URL("../manager/thread.js", import.meta.url);

/** How long a manager that was told to stop may take beyond its grace, in ms. */
const beyondGraceMs = 15_000;

interface ManagerThreadEvents {
  /** It serves its table. */
  ready: [];
  /** It does not, for this reason, and tries again by itself. */
  waiting: [reason: ErrorReport];
  demand: [sessions: number];
  held: [sessions: number];
  /** Its thread ended, and all its sessions with it. */
  died: [];
}

/** One manager in a thread of its own, started again whenever it dies. */
export class ManagerThread extends EventEmitter<ManagerThreadEvents> {
  readonly entry: Entry;
  readonly #log: Log;
  readonly #writeLine: (line: string) => void;
  readonly #ending = new AbortController();
  #worker: Worker | null = null;
  #running: Promise<void> = Promise.resolve();

  constructor(
    entry: Entry,
    options: { readonly log: Log; readonly writeLine: (line: string) => void },
  ) {
    super();
    this.entry = entry;
    this.#log = options.log;
    this.#writeLine = options.writeLine;
  }

  start(): void {
    this.#running = this.#keepRunning();
  }

  grant(sessions: number): void {
    this.#tell({ type: "grant", sessions });
  }

  /** Ends the manager within its grace and a little more, else its thread. Asked again, the shorter grace holds. */
  async stop(graceMs: number): Promise<void> {
    this.#ending.abort();
    this.#tell({ type: "stop", graceMs });
    const late = new AbortController();
    const ended = this.#running.finally(() => late.abort());
    if (await pause(graceMs + beyondGraceMs, late.signal)) {
      await this.#giveUp();
    }
    await ended;
  }

  async #giveUp(): Promise<void> {
    const worker = this.#worker;
    if (worker === null) return;
    this.#worker = null;
    this.#log.error({ entry: this.entry.key }, "manager does not stop, its thread is ended");
    await worker.terminate();
  }

  async #keepRunning(): Promise<void> {
    const longestMs = this.entry.parameters["pg_conf.restart"] * 1000;
    const backoff = new Backoff({ firstMs: 100, maxMs: longestMs });
    while (!this.#ending.signal.aborted) {
      const start = performance.now();
      const reason = await this.#live();
      if (this.#ending.signal.aborted) return;
      // One that works and soon dies again has not recovered.
      if (performance.now() - start > longestMs) backoff.reset();
      const pauseMs = backoff.next();
      this.#log.error(
        { entry: this.entry.key, reason: reason.message, pauseMs },
        "manager died, it is started again",
      );
      this.emit("waiting", { code: reason.code, message: reason.message });
      this.emit("died");
      await pause(pauseMs, this.#ending.signal);
    }
  }

  /** From the thread's start to its end, for whatever reason. */
  async #live(): Promise<PgTaskError> {
    const sender = new HandshakeSender();
    const data: ManagerThreadData = { buffer: sender.buffer };
    const worker = new Worker(entryFile, { workerData: data, name: this.entry.key });
    this.#worker = worker;
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
    const parameters: ManagerParameters = { entry: this.entry };
    sender
      .send(
        parameters,
        (reference) => this.#tell({ type: "start", ...reference }),
        this.entry.parameters["pg_conf.close"],
      )
      .catch(async (error: unknown) => {
        blame(error);
        await worker.terminate();
      });
    const code = await exited;
    this.#worker = null;
    sender.fail(new PgTaskError("THREAD_DIED", "the thread ended"));
    return reason ?? new PgTaskError("THREAD_DIED", `the thread ended with code ${code}`);
  }

  #receive(message: FromManager): void {
    switch (message.type) {
      case "ready":
        this.emit("ready");
        break;
      case "waiting":
        this.emit("waiting", message.reason);
        break;
      case "demand":
        this.emit("demand", message.sessions);
        break;
      case "held":
        this.emit("held", message.sessions);
        break;
      case "log":
        this.#writeLine(message.line);
        break;
      case "stopped":
        break;
    }
  }

  #tell(message: ToManager): void {
    this.#worker?.postMessage(message);
  }
}

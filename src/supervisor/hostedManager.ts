import { sleep } from "../shared/backoff.js";
import { errorMessage, fromReport, PgTaskError } from "../shared/errors.js";
import type { FromManager, ManagerParameters, ToManager } from "../shared/ipc/managerMessages.js";
import type { ManagerMemory } from "../shared/ipc/sleepingTable.js";
import { HeartbeatWatch } from "./heartbeatWatch.js";
import type { ManagerWorker } from "./spareWorkers.js";

/** Why a manager has ended: because of an error, or to sleep. */
export type ManagerEnd = { readonly reason: PgTaskError } | { readonly memory: ManagerMemory };

/** How long others wait for a manager that begins, in ms. Its server may not answer. */
const longestBeginningMs = 1_000;

interface HostedManagerOptions {
  /** How long the thread may take to answer, in ms. */
  readonly limitMs: number;
  readonly receive: (message: Exclude<FromManager, { readonly type: "stopped" | "heartbeat" }>) => void;
  readonly giveBack: (thread: ManagerWorker) => void;
}

/**
 * A manager in its thread. The thread is terminated if it freezes, or does not accept parameters in time. If the manager
 * falls asleep, the thread is given back.
 */
export class HostedManager {
  readonly ended: Promise<ManagerEnd>;
  readonly #thread: ManagerWorker;
  readonly #options: HostedManagerOptions;
  readonly #heartbeatWatch: HeartbeatWatch;
  #end: (end: ManagerEnd) => void = () => {};
  /** Whether the manager serves its table, not that it cannot. */
  readonly #firstReport: Promise<boolean>;
  /** Only the first reason counts. */
  #reason: PgTaskError | null = null;

  constructor(thread: ManagerWorker, options: HostedManagerOptions) {
    this.#thread = thread;
    this.#options = options;
    const { worker } = thread;
    const { limitMs } = options;
    this.#heartbeatWatch = new HeartbeatWatch(worker, {
      limitMs,
      ask: () => this.post({ type: "heartbeat" }),
      onFreeze: () => this.#fail(new PgTaskError("THREAD_DIED", `no heartbeat for ${limitMs} ms`)),
    });
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#firstReport = new Promise((resolve) => {
      worker.on("message", ({ type }: FromManager) => {
        if (type === "ready" || type === "unavailable") resolve(type === "ready");
      });
    });
    worker.on("error", (error) => this.#setReason(error));
    worker.once("exit", (code) => this.#exited(code));
    worker.on("message", (message: FromManager) => {
      if (message.type === "heartbeat") this.#heartbeatWatch.answer();
      else if (message.type === "stopped") this.#stopped(message);
      else options.receive(message);
    });
  }

  /** Resolves with true when the manager serves its table, or with false when it cannot or has ended, or after some time. */
  async begun(signal: AbortSignal): Promise<boolean> {
    const isOver = Promise.race([this.ended, sleep(longestBeginningMs, signal)]);
    return await Promise.race([this.#firstReport, isOver.then(() => false)]);
  }

  post(message: ToManager): void {
    this.#thread.worker.postMessage(message);
  }

  sendParameters(type: "start" | "reconfigure", parameters: ManagerParameters): void {
    this.#thread.sender
      .send(parameters, (handover) => this.post({ type, ...handover }), this.#options.limitMs)
      .catch((error: unknown) => this.#fail(error));
  }

  async terminate(): Promise<void> {
    await this.#thread.worker.terminate();
  }

  #stopped({ reason, memory }: Extract<FromManager, { readonly type: "stopped" }>): void {
    if (reason === null && memory !== null && this.#reason === null) {
      this.#heartbeatWatch.stop();
      this.#options.giveBack(this.#thread);
      this.#end({ memory });
      return;
    }
    if (reason !== null) this.#setReason(fromReport(reason));
    void this.terminate();
  }

  #exited(code: number): void {
    this.#heartbeatWatch.stop();
    this.#thread.sender.fail(new PgTaskError("THREAD_DIED", "the thread ended"));
    this.#end({ reason: this.#reason ?? new PgTaskError("THREAD_DIED", `the thread ended with code ${code}`) });
  }

  #fail(reason: unknown): void {
    this.#setReason(reason);
    void this.terminate();
  }

  #setReason(error: unknown): void {
    const known = error instanceof PgTaskError ? error : null;
    this.#reason ??= known ?? new PgTaskError("THREAD_DIED", errorMessage(error), { cause: error });
  }
}

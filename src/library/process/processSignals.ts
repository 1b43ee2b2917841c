import type { Log } from "../../shared/log.js";

/** npm forwards Ctrl-C twice. A second signal within this time, in ms, counts as the same request. */
const repeatedSignalMs = 1000;

interface Target {
  /** Stops with this grace period in ms, or with the configured one. A second call can shorten it. */
  readonly stop: (graceMs?: number) => void;
  readonly reload: () => void;
}

/**
 * Handles signals from the start of the process to its end, so that none kills the process: SIGTERM, SIGINT and the
 * parent's message `shutdown` stop it, gracefully at first and at once when they are repeated, and SIGHUP reloads the
 * configuration. A request that arrives before there is a target is remembered.
 */
export class ProcessSignals {
  readonly #log: Log;
  #firstStopAt: number | null = null;
  #stop: "none" | "graceful" | "immediate" = "none";
  #isReloadRequested = false;
  #target: Target | null = null;

  constructor(log: Log) {
    this.#log = log;
    process.on("SIGTERM", this.#onStop);
    process.on("SIGINT", this.#onStop);
    process.on("message", this.#onMessage);
    process.on("SIGHUP", this.#onReload);
  }

  forwardTo(target: Target): void {
    this.#target = target;
    this.#forwardStop();
    if (this.#isReloadRequested) target.reload();
  }

  close(): void {
    process.off("SIGTERM", this.#onStop);
    process.off("SIGINT", this.#onStop);
    process.off("message", this.#onMessage);
    process.off("SIGHUP", this.#onReload);
  }

  readonly #onReload = (): void => {
    if (this.#target === null) this.#isReloadRequested = true;
    else this.#target.reload();
  };

  readonly #onMessage = (message: unknown): void => {
    if (message === "shutdown") this.#onStop("shutdown");
  };

  readonly #onStop = (signal: string): void => {
    if (this.#firstStopAt === null) {
      this.#firstStopAt = performance.now();
      this.#log.info({ signal }, "stopping: running tasks may finish");
      this.#stop = "graceful";
    } else if (this.#stop === "graceful" && performance.now() - this.#firstStopAt > repeatedSignalMs) {
      this.#log.warn("stopping at once: running tasks are cancelled");
      this.#stop = "immediate";
    } else return;
    this.#forwardStop();
  };

  #forwardStop(): void {
    if (this.#stop !== "none") this.#target?.stop(this.#stop === "immediate" ? 0 : undefined);
  }
}

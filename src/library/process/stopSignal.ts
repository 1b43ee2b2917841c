import type { Log } from "../../shared/log.js";

/** npm forwards Ctrl-C twice. A second signal within this time, in ms, counts as the same request. */
const repeatedSignalMs = 1000;

/** A component that can be stopped. `end` gets the grace period in ms. A second call can shorten this period. */
interface Stoppable {
  end(graceMs?: number): Promise<unknown>;
}

/**
 * Handles SIGTERM, SIGINT and the parent's `shutdown` message from the start of the process to its end, so that no
 * signal kills the process. The first request asks for a graceful stop, and a later request asks for an immediate stop.
 * A request that arrives before there is anything to stop is remembered.
 */
export class StopSignal {
  readonly #log: Log;
  #firstAt: number | null = null;
  #requested: "none" | "graceful" | "immediate" = "none";
  #target: Stoppable | null = null;

  constructor(log: Log) {
    this.#log = log;
    process.on("SIGTERM", this.#onSignal);
    process.on("SIGINT", this.#onSignal);
    process.on("message", this.#onMessage);
  }

  /** Stops `target` when a stop is requested. If a stop was requested earlier, stops `target` at once. */
  stopOnRequest(target: Stoppable): void {
    this.#target = target;
    this.#forward();
  }

  close(): void {
    process.off("SIGTERM", this.#onSignal);
    process.off("SIGINT", this.#onSignal);
    process.off("message", this.#onMessage);
  }

  readonly #onMessage = (message: unknown): void => {
    if (message === "shutdown") this.#onSignal("shutdown");
  };

  readonly #onSignal = (signal: string): void => {
    if (this.#firstAt === null) {
      this.#firstAt = performance.now();
      this.#log.info({ signal }, "stopping: running tasks may finish");
      this.#request("graceful");
    } else if (this.#requested === "graceful" && performance.now() - this.#firstAt > repeatedSignalMs) {
      this.#log.warn("stopping at once: running tasks are cancelled");
      this.#request("immediate");
    }
  };

  #request(how: "graceful" | "immediate"): void {
    this.#requested = how;
    this.#forward();
  }

  #forward(): void {
    if (this.#requested === "graceful") void this.#target?.end();
    else if (this.#requested === "immediate") void this.#target?.end(0);
  }
}

import type { Log } from "../../shared/log.js";
import { onStopSignal } from "./signals.js";

/** What can be told to end; again with a shorter grace, in ms. */
interface Stoppable {
  end(graceMs?: number): Promise<unknown>;
}

/**
 * Hears from the first moment to the last that the process is to stop, so that no signal ends it
 * out of order, and passes that on to what runs by then.
 */
export class StopRequest {
  readonly ignore: () => void;
  #asked: "no" | "in order" | "at once" = "no";
  #running: Stoppable | null = null;

  constructor(log: Log) {
    this.ignore = onStopSignal(
      (signal) => {
        log.info({ signal }, "stopping: running tasks may finish");
        this.#ask("in order");
      },
      () => {
        if (this.#asked === "at once") return;
        log.warn("stopping at once: running tasks are cancelled");
        this.#ask("at once");
      },
    );
  }

  /** From now on it is told; at once if that was asked for before. */
  passOn(running: Stoppable): void {
    this.#running = running;
    this.#tell();
  }

  #ask(how: "in order" | "at once"): void {
    this.#asked = how;
    this.#tell();
  }

  #tell(): void {
    if (this.#asked === "in order") void this.#running?.end();
    else if (this.#asked === "at once") void this.#running?.end(0);
  }
}

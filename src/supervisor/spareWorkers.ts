import { Worker } from "node:worker_threads";
import { HandshakeSender } from "../shared/ipc/handshake/sender.js";
import { createHeartbeat } from "../shared/ipc/heartbeat.js";
import type { ManagerThreadData } from "../shared/ipc/messages.js";

const entryFile = new URL("../manager/thread.js", import.meta.url);

/** A thread that has loaded the manager's code, or is about to, and waits for its parameters. */
export interface ManagerWorker {
  readonly worker: Worker;
  readonly sender: HandshakeSender;
  readonly heart: SharedArrayBuffer;
}

export function startWorker(): ManagerWorker {
  const sender = new HandshakeSender();
  const heart = createHeartbeat();
  const data: ManagerThreadData = { buffer: sender.buffer, heart };
  return { worker: new Worker(entryFile, { workerData: data, name: "pg_work" }), sender, heart };
}

/**
 * Threads that wait for a manager: most of a manager's start is loading its code, which who waits for
 * leadership, or for the server, can do before. They have no connection and nothing to do.
 */
export class SpareWorkers {
  readonly #spare = new Set<ManagerWorker>();

  get waiting(): readonly ManagerWorker[] {
    return [...this.#spare];
  }

  /** Sees to it that so many wait. */
  keep(count: number): void {
    for (let missing = count - this.#spare.size; missing > 0; missing -= 1) this.#add();
  }

  /** One that waits, else a new one; from now on it is the caller's. */
  take(): ManagerWorker {
    const [spare] = this.#spare;
    if (spare === undefined) return startWorker();
    this.#spare.delete(spare);
    spare.worker.removeAllListeners();
    return spare;
  }

  /** Resolves when none is left. */
  async end(): Promise<void> {
    const spare = [...this.#spare];
    this.#spare.clear();
    await Promise.all(spare.map(({ worker }) => worker.terminate()));
  }

  /** One that dies while it waits is told of by the next that is started in its place. */
  #add(): void {
    const spare = startWorker();
    this.#spare.add(spare);
    spare.worker.on("error", () => this.#spare.delete(spare));
    spare.worker.on("exit", () => this.#spare.delete(spare));
  }
}

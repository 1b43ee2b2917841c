import { Worker } from "node:worker_threads";
import { HandshakeSender } from "../shared/ipc/handshake.js";
import { packageFile } from "../shared/packageFile.js";

const entryFile = packageFile("dist/src/manager/thread.cjs");

/** A thread that loads the manager's code and then waits for parameters. */
export interface ManagerWorker {
  readonly worker: Worker;
  readonly sender: HandshakeSender;
}

function startWorker(): ManagerWorker {
  return { worker: new Worker(entryFile, { name: "pg_work" }), sender: new HandshakeSender() };
}

/**
 * Keeps idle threads ready for managers. Starting a manager mostly means loading code, which can be done while waiting
 * for leadership or for the server. Idle threads have no connection.
 */
export class SpareWorkers {
  readonly #workers = new Set<ManagerWorker>();

  get idle(): readonly ManagerWorker[] {
    return [...this.#workers];
  }

  fillUp(count: number): void {
    for (let missing = count - this.#workers.size; missing > 0; missing -= 1) this.#add();
  }

  /** Returns an idle thread, or a new one. From then on the thread belongs to the caller. */
  take(): ManagerWorker {
    const [spare] = this.#workers;
    if (spare === undefined) return startWorker();
    this.#workers.delete(spare);
    spare.worker.removeAllListeners();
    return spare;
  }

  async terminate(): Promise<void> {
    const spare = [...this.#workers];
    this.#workers.clear();
    await Promise.all(spare.map(({ worker }) => worker.terminate()));
  }

  /** A thread that ends is dropped. If the cause persists, the thread that a manager gets in its place reports it. */
  #add(): void {
    const spare = startWorker();
    this.#workers.add(spare);
    spare.worker.on("error", () => this.#workers.delete(spare));
    spare.worker.on("exit", () => this.#workers.delete(spare));
  }
}

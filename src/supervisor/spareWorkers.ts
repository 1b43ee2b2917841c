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
 * for leadership or for the server. The thread of a manager that fell asleep serves another one, and has compiled most of
 * the code by then. Idle threads have no connection.
 */
export class SpareWorkers {
  #workers = new Set<ManagerWorker>();
  #most = 0;

  get idle(): readonly ManagerWorker[] {
    return [...this.#workers];
  }

  /** Starts idle threads, so that there are at least `count`, and keeps at most `most` from then on. */
  keep(count: number, most = count): void {
    this.#most = most;
    while (this.#workers.size < count) {
      const spare = startWorker();
      this.#workers.add(spare);
      this.#dropAtEnd(spare);
    }
    this.#endSurplus();
  }

  /** Returns an idle thread, or a new one. From then on the thread belongs to the caller. */
  take(): ManagerWorker {
    const [spare] = this.#workers;
    if (spare === undefined) return startWorker();
    this.#workers.delete(spare);
    removeListeners(spare);
    return spare;
  }

  /** Takes back a thread whose manager has ended. It is used before those that have compiled nothing yet. */
  giveBack(spare: ManagerWorker): void {
    removeListeners(spare);
    this.#workers = new Set([spare, ...this.#workers]);
    this.#dropAtEnd(spare);
    this.#endSurplus();
  }

  async terminate(): Promise<void> {
    this.#most = 0;
    const spare = [...this.#workers];
    this.#workers.clear();
    await Promise.all(spare.map(({ worker }) => worker.terminate()));
  }

  /** If the cause of a thread's end persists, the thread that a manager gets in its place reports it. */
  #dropAtEnd(spare: ManagerWorker): void {
    spare.worker.on("error", () => this.#workers.delete(spare));
    spare.worker.on("exit", () => this.#workers.delete(spare));
  }

  #endSurplus(): void {
    for (const spare of [...this.#workers].slice(this.#most)) {
      this.#workers.delete(spare);
      void spare.worker.terminate();
    }
  }
}

/** Not those of Node itself, without which no message of the thread would be received any more. */
function removeListeners({ worker }: ManagerWorker): void {
  for (const event of ["message", "error", "exit"]) worker.removeAllListeners(event);
}

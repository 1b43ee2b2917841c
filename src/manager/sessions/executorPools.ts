import { fileURLToPath } from "node:url";
import { Piscina } from "piscina";
import { packageFile } from "../../shared/packageFile.js";

// One CommonJS file, because Node.js aborts the whole process if a thread is terminated while it loads ES modules for
// Piscina, and because one file loads faster than many.
const entry = fileURLToPath(packageFile("dist/src/executor/host.cjs"));

/** The largest value that the setting `pg_conf.threads` can have. */
const maxThreads = 1024;

/** How long an idle thread is kept for a manager that may need it soon, in ms. */
const keepMs = 10_000;

/**
 * The Piscina pools of the managers of one thread, which run one after another. Starting an executor thread is most of
 * what a woken manager costs, so the pool of a manager that falls asleep is kept for the next one with its thread, unless
 * it has more than one.
 */
export class ExecutorPools {
  #kept: Piscina | null = null;
  #timer: NodeJS.Timeout | undefined;

  /** From now on, the caller has to handle the pool's errors. */
  take(): Piscina {
    const kept = this.#kept;
    this.#forget();
    if (kept?.threads.length === 1) return kept;
    void kept?.destroy();
    const pool = new Piscina({
      filename: entry,
      minThreads: 0,
      // The caller limits the number of threads itself, because the limit may change.
      maxThreads,
      concurrentTasksPerWorker: 1,
      // By default, Piscina drops a thread whose work has ended, without waiting until the thread has exited.
      idleTimeout: Infinity,
      // By default, Piscina blocks the event loop of an idle thread, but the thread's connections need the event loop.
      atomics: "disabled",
    });
    pool.on("error", () => {
      if (this.#kept === pool) void this.end();
    });
    return pool;
  }

  /** @param pool whose Piscina tasks have all ended */
  async giveBack(pool: Piscina): Promise<void> {
    if (this.#kept !== null || pool.threads.length !== 1) {
      await pool.destroy();
      return;
    }
    this.#kept = pool;
    this.#endSoon();
  }

  /** A manager begins. If it does not need the idle thread soon, the thread ends. */
  begin(): void {
    if (this.#kept !== null) this.#endSoon();
  }

  /** Keeps the idle thread for as long as no manager runs here. */
  keep(): void {
    clearTimeout(this.#timer);
  }

  async end(): Promise<void> {
    const kept = this.#kept;
    this.#forget();
    await kept?.destroy();
  }

  #endSoon(): void {
    this.#timer = setTimeout(() => void this.end(), keepMs).unref();
  }

  #forget(): void {
    clearTimeout(this.#timer);
    this.#kept = null;
  }
}

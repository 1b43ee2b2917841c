import type { Worker } from "node:worker_threads";

export interface HeartbeatWatchOptions {
  readonly limitMs: number;
  /** Asks the thread for a heartbeat. The answer is passed to `answer`. */
  readonly ask: () => void;
  readonly onFreeze: () => void;
}

/**
 * Watches whether the event loop of a thread is running. Node.js tells how long it has been idle. A thread that was busy
 * all the time is asked, and answers as soon as its event loop runs.
 *
 * The limit is counted in checks, not in elapsed time. If the whole process is suspended, there are no checks either, so
 * the suspension is not mistaken for a freeze.
 */
export class HeartbeatWatch {
  readonly #worker: Pick<Worker, "performance">;
  readonly #options: HeartbeatWatchOptions;
  readonly #everyMs: number;
  #idleMs: number;
  #hasAnswered = false;
  #isAsked = false;
  /** How many checks in a row have found no heartbeat. */
  #missed = 0;
  readonly stop: () => void;

  constructor(worker: Pick<Worker, "performance">, options: HeartbeatWatchOptions) {
    this.#worker = worker;
    this.#options = options;
    this.#everyMs = Math.min(5_000, Math.max(100, options.limitMs / 10));
    this.#idleMs = worker.performance.eventLoopUtilization().idle;
    this.stop = checkEvery(this.#everyMs, () => this.#check());
  }

  answer(): void {
    this.#hasAnswered = true;
    this.#isAsked = false;
  }

  #check(): void {
    const idleMs = this.#worker.performance.eventLoopUtilization().idle;
    const wasIdle = idleMs > this.#idleMs;
    this.#idleMs = idleMs;
    this.#missed = wasIdle || this.#hasAnswered ? 0 : this.#missed + 1;
    this.#hasAnswered = false;
    if (!wasIdle && !this.#isAsked) {
      this.#isAsked = true;
      this.#options.ask();
    }
    // A single missed heartbeat can be a delay of the timer.
    if (this.#missed < 2 || this.#missed * this.#everyMs < this.#options.limitMs) return;
    this.stop();
    this.#options.onFreeze();
  }
}

/** The checks by their interval in ms. Checks with the same interval share a timer, so that it wakes the process once. */
const rounds = new Map<number, { readonly checks: Set<() => void>; readonly timer: NodeJS.Timeout }>();

/** Calls `check` at this interval, in ms, until the returned function is called. */
function checkEvery(ms: number, check: () => void): () => void {
  let round = rounds.get(ms);
  if (round === undefined) {
    const checks = new Set<() => void>();
    const timer = setInterval(() => checks.forEach((each) => each()), ms).unref();
    round = { checks, timer };
    rounds.set(ms, round);
  }
  const { checks, timer } = round;
  checks.add(check);
  return () => {
    // A second call must not end the round of others that began later.
    if (!checks.delete(check) || checks.size > 0) return;
    clearInterval(timer);
    rounds.delete(ms);
  };
}

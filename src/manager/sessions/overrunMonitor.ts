import { longestTimerMs } from "../../shared/backoff.js";
import type { Log } from "../../shared/log.js";
import { minOverrunCheckMs } from "../model/tuning.js";
import type { PooledSession } from "./session.js";
import type { QueuedTask } from "./sessionQueue.js";

export interface OverrunMonitorOptions {
  /** `pg_task.slow`, in ms; 0 means that no run takes too long. */
  readonly slowMs: () => number;
  readonly onChange: () => void;
  readonly log: Log;
}

/**
 * Logs each run once, while it runs, when it has taken longer than `pg_task.slow`, and counts such runs. Nothing is done
 * when a run starts or ends: one timer waits until the run that started first could have taken too long.
 */
export class OverrunMonitor {
  readonly #sessions: Iterable<PooledSession>;
  readonly #options: OverrunMonitorOptions;
  #overruns: ReadonlySet<QueuedTask> = new Set();
  #timer: NodeJS.Timeout | undefined;

  constructor(sessions: Iterable<PooledSession>, options: OverrunMonitorOptions) {
    this.#sessions = sessions;
    this.#options = options;
  }

  /** How many tasks have been running for too long. */
  get count(): number {
    if (this.#overruns.size === 0) return 0;
    let count = 0;
    for (const { queue } of this.#sessions) if (queue.current !== null && this.#overruns.has(queue.current)) count += 1;
    return count;
  }

  /** Tasks have been assigned to sessions. */
  start(): void {
    if (this.#timer === undefined) this.#wait(this.#options.slowMs());
  }

  /** Also called when the limit may have changed. */
  check(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const slowMs = this.#options.slowMs();
    const before = this.#overruns;
    const overruns = new Set<QueuedTask>();
    let nextMs = Infinity;
    for (const { queue, backend } of this.#sessions) {
      const { current, currentMs } = queue;
      if (current === null || slowMs === 0) continue;
      if (currentMs < slowMs) nextMs = Math.min(nextMs, slowMs - currentMs);
      else overruns.add(current);
      if (queue.size > 1) nextMs = Math.min(nextMs, slowMs);
      if (overruns.has(current) && !before.has(current)) this.#report(current, currentMs, backend?.pid);
    }
    this.#overruns = overruns;
    this.#wait(nextMs);
    if (before.size + overruns.size > 0) this.#options.onChange();
  }

  #wait(ms: number): void {
    if (this.#options.slowMs() === 0 || ms === Infinity) return;
    this.#timer = setTimeout(() => this.check(), Math.min(Math.max(ms, minOverrunCheckMs), longestTimerMs));
    this.#timer.unref();
  }

  #report({ task }: QueuedTask, ms: number, backend: number | undefined): void {
    const { id, key, group } = task;
    this.#options.log.warn(
      { id, ...(key === null ? undefined : { key }), group, backend, ms: Math.round(ms) },
      "task runs for longer than pg_task.slow",
    );
  }
}

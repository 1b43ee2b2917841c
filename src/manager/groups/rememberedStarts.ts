import { maxRememberedStarts } from "../model/tuning.js";

/**
 * When a task of each group last started, for groups that are not active at present. Only the groups that were active
 * last are remembered. All times are in ms, on the process's clock.
 */
export class RememberedStarts {
  readonly #starts = new Map<number, number>();
  readonly #max: number;
  /** No group that is not remembered had a start after this time. */
  #othersStartedAt: number;

  /**
   * @param now the present time; until then, tasks of any group may have started
   * @param max how many groups are remembered
   */
  constructor(now: number, max = maxRememberedStarts) {
    this.#othersStartedAt = now;
    this.#max = max;
  }

  /** Removes and returns the latest time at which a task of the group may have started. */
  take(hash: number): number {
    const startedAt = this.#starts.get(hash);
    this.#starts.delete(hash);
    return startedAt ?? this.#othersStartedAt;
  }

  add(hash: number, startedAt: number): void {
    if (startedAt <= this.#othersStartedAt) return;
    this.#starts.set(hash, startedAt);
    if (this.#starts.size <= this.#max) return;
    for (const [oldest, at] of this.#starts) {
      this.#starts.delete(oldest);
      this.#othersStartedAt = Math.max(this.#othersStartedAt, at);
      return;
    }
  }

  /** Notes that another manager may have started tasks of any group until now. */
  reset(now: number): void {
    this.#starts.clear();
    this.#othersStartedAt = now;
  }
}

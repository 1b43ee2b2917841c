/** Exponential backoff. Its jitter keeps clients that failed at the same time from retrying at the same time. */
export class Backoff {
  readonly #firstMs: number;
  #maxMs: number;
  readonly #factor: number;
  readonly #jitter: number;
  readonly #random: () => number;
  readonly #calmMs: number;
  readonly #now: () => number;
  #pauseMs: number;
  /** Whether the next delay is 0 ms. */
  #atOnce: boolean;
  #failedAt = -Infinity;

  /**
   * @param options.firstMs the first delay, in ms
   * @param options.maxMs the longest delay, in ms
   * @param options.factor factor by which the delay grows after each failure, at least 1; default 2
   * @param options.jitter largest fraction, 0 to 1, by which a delay is shortened at random; default 0.25
   * @param options.random returns a number from 0 (inclusive) to 1 (exclusive)
   * @param options.calmMs if set, the delay after the first failure is 0. If an attempt succeeds at least this long, in
   * ms, after the last failure, the delay after the next failure is 0 again.
   * @param options.now returns the time in ms
   */
  constructor(options: {
    readonly firstMs: number;
    readonly maxMs: number;
    readonly factor?: number;
    readonly jitter?: number;
    readonly random?: () => number;
    readonly calmMs?: number;
    readonly now?: () => number;
  }) {
    this.#firstMs = Math.min(options.firstMs, options.maxMs);
    this.#maxMs = options.maxMs;
    this.#factor = options.factor ?? 2;
    this.#jitter = options.jitter ?? 0.25;
    this.#random = options.random ?? Math.random;
    this.#calmMs = options.calmMs ?? Infinity;
    this.#now = options.now ?? (() => performance.now());
    this.#atOnce = this.#calmMs < Infinity;
    this.#pauseMs = this.#firstMs;
  }

  /**
   * Records that an attempt failed.
   *
   * @returns the delay before the next attempt, in whole ms
   */
  next(): number {
    this.#failedAt = this.#now();
    if (this.#atOnce) {
      this.#atOnce = false;
      return 0;
    }
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(pauseMs * this.#factor, this.#maxMs);
    return Math.round(pauseMs * (1 - this.#jitter * this.#random()));
  }

  /** Changes the longest delay, in ms. */
  limit(maxMs: number): void {
    this.#maxMs = maxMs;
    this.#pauseMs = Math.min(this.#pauseMs, maxMs);
  }

  /** Records that an attempt succeeded. The delays then start again with the first one. */
  reset(): void {
    this.#pauseMs = Math.min(this.#firstMs, this.#maxMs);
    this.#atOnce = this.#now() - this.#failedAt >= this.#calmMs;
  }
}

/** The longest time for which a timer of Node can be set. It fires at once if it is set for longer. */
export const longestTimerMs = 2_147_483_647;

/**
 * Waits `ms` (at most 2147483647, even if it is more), or until `signal` is aborted. Never rejects.
 *
 * @returns false if `signal` was aborted first
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve(false);
      return;
    }
    const end = (isWhole: boolean): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
      resolve(isWhole);
    };
    const aborted = (): void => end(false);
    const timer = setTimeout(end, Math.min(ms, longestTimerMs), true);
    signal?.addEventListener("abort", aborted);
  });
}

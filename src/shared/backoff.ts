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
  #atOnce: boolean;
  #failedAt = -Infinity;

  /**
   * @param options.factor factor by which the delay grows after each failure; default 2
   * @param options.jitter largest fraction by which a delay is shortened at random; default 0.25
   * @param options.calmMs the delay after the first failure, and after one that follows a success at least this long
   * after the last failure, is 0
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

  /** Records that an attempt failed. Returns the delay before the next one, in whole ms. */
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

  limit(maxMs: number): void {
    this.#maxMs = maxMs;
    this.#pauseMs = Math.min(this.#pauseMs, maxMs);
  }

  /** Records that an attempt succeeded. */
  reset(): void {
    this.#pauseMs = Math.min(this.#firstMs, this.#maxMs);
    this.#atOnce = this.#now() - this.#failedAt >= this.#calmMs;
  }
}

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

interface BackoffOptions {
  readonly firstMs: number;
  readonly maxMs: number;
  /** By which the delay grows after each failure. */
  readonly factor?: number;
  /** Largest fraction by which a delay is shortened at random. */
  readonly jitter?: number;
  /** The delay after the first failure, and after one that follows a success at least this long after the last, is 0. */
  readonly calmMs?: number;
  readonly random?: () => number;
  readonly now?: () => number;
}

const defaults = { factor: 2, jitter: 0.25, calmMs: Infinity, random: Math.random, now: () => performance.now() };

/** Exponential backoff. Its jitter keeps clients that failed at the same time from retrying at the same time. */
export class Backoff {
  readonly #options: Required<BackoffOptions>;
  #maxMs: number;
  #pauseMs: number;
  #atOnce: boolean;
  #failedAt = -Infinity;

  constructor(options: BackoffOptions) {
    this.#options = { ...defaults, ...options };
    this.#maxMs = options.maxMs;
    this.#pauseMs = Math.min(options.firstMs, options.maxMs);
    this.#atOnce = this.#options.calmMs < Infinity;
  }

  /** Records that an attempt failed. Returns the delay before the next one, in whole ms. */
  next(): number {
    const { factor, jitter, random, now } = this.#options;
    this.#failedAt = now();
    if (this.#atOnce) {
      this.#atOnce = false;
      return 0;
    }
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(pauseMs * factor, this.#maxMs);
    return Math.round(pauseMs * (1 - jitter * random()));
  }

  limit(maxMs: number): void {
    this.#maxMs = maxMs;
    this.#pauseMs = Math.min(this.#pauseMs, maxMs);
  }

  /** Records that an attempt succeeded. */
  reset(): void {
    const { firstMs, calmMs, now } = this.#options;
    this.#pauseMs = Math.min(firstMs, this.#maxMs);
    this.#atOnce = now() - this.#failedAt >= calmMs;
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

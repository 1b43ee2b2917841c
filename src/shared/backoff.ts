/** How much a delay grows after each failure, and the largest part by which it is shortened at random. */
const factor = 2;
const jitter = 0.25;

/** Exponential backoff. Its jitter keeps clients that failed at the same time from retrying at the same time. */
export class Backoff {
  readonly #firstMs: number;
  #maxMs: number;
  readonly #calmMs: number;
  #pauseMs: number;
  #atOnce: boolean;
  #failedAt = -Infinity;

  /**
   * @param options.calmMs the delay after the first failure, and after one that follows a success at least this long
   * after the last failure, is 0
   */
  constructor(options: { readonly firstMs: number; readonly maxMs: number; readonly calmMs?: number }) {
    this.#firstMs = Math.min(options.firstMs, options.maxMs);
    this.#maxMs = options.maxMs;
    this.#calmMs = options.calmMs ?? Infinity;
    this.#atOnce = this.#calmMs < Infinity;
    this.#pauseMs = this.#firstMs;
  }

  /** Records that an attempt failed. Returns the delay before the next attempt, in whole ms. */
  next(): number {
    this.#failedAt = performance.now();
    if (this.#atOnce) {
      this.#atOnce = false;
      return 0;
    }
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(pauseMs * factor, this.#maxMs);
    return Math.round(pauseMs * (1 - jitter * Math.random()));
  }

  limit(maxMs: number): void {
    this.#maxMs = maxMs;
    this.#pauseMs = Math.min(this.#pauseMs, maxMs);
  }

  /** Records that an attempt succeeded. */
  reset(): void {
    this.#pauseMs = Math.min(this.#firstMs, this.#maxMs);
    this.#atOnce = performance.now() - this.#failedAt >= this.#calmMs;
  }
}

/** Node fires a timer at once if it is set for longer. */
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

/** Starts a timer of any length. Returns a function that stops it. */
export function startTimer(delayMs: number, fire: () => void): () => void {
  let remainingMs = delayMs;
  let timer: NodeJS.Timeout;
  const next = () => {
    const step = Math.min(remainingMs, longestTimerMs);
    remainingMs -= step;
    timer = setTimeout(remainingMs > 0 ? next : fire, step);
  };
  next();
  return () => clearTimeout(timer);
}

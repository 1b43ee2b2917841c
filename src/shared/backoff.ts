/** Growing pauses between attempts, spread so that those who failed together don't return together. */
export class Backoff {
  readonly #firstMs: number;
  #maxMs: number;
  readonly #factor: number;
  readonly #jitter: number;
  readonly #random: () => number;
  readonly #calmMs: number;
  readonly #now: () => number;
  #pauseMs: number;
  /** Whether the next attempt need not wait. */
  #atOnce: boolean;
  #failedAt = -Infinity;

  /**
   * @param options.firstMs the first pause
   * @param options.maxMs no pause is longer
   * @param options.factor how much longer each pause is than the one before, at least 1
   * @param options.jitter part of a pause, 0 to 1, that chance may take away
   * @param options.random 0 to 1, 1 excluded
   * @param options.calmMs after so long without a failure, and a success, the first attempt comes at
   * once; never unless given
   * @param options.now the time in ms
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

  /** How long to wait before the next attempt, in whole ms. */
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

  /** No later pause is longer than this, in ms. */
  limit(maxMs: number): void {
    this.#maxMs = maxMs;
    this.#pauseMs = Math.min(this.#pauseMs, maxMs);
  }

  /** An attempt succeeded: the next pause is the first again. */
  reset(): void {
    this.#pauseMs = Math.min(this.#firstMs, this.#maxMs);
    this.#atOnce = this.#now() - this.#failedAt >= this.#calmMs;
  }
}

/**
 * Waits `ms` (0 to 2147483647), or until `signal` is aborted. Never rejects, so that a loop of
 * attempts needs no catch for being told to end.
 *
 * @returns whether the whole time has passed
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve(false);
      return;
    }
    const end = (whole: boolean): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
      resolve(whole);
    };
    const aborted = (): void => end(false);
    const timer = setTimeout(end, ms, true);
    signal?.addEventListener("abort", aborted);
  });
}

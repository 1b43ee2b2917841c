import { monitorEventLoopDelay, type IntervalHistogram } from "node:perf_hooks";

/** Time after which the measurement stops if the delays have not been read, in ms. */
const unusedMs = 120_000;
const resolutionMs = 20;

/**
 * Converts a value of the histogram to a delay in seconds. The histogram records the time between two timer ticks.
 * Without delay, this time equals the resolution, so the delay is the part that exceeds the resolution.
 */
const delaySeconds = (ns: number): number => Math.max(0, ns / 1e9 - resolutionMs / 1000);

/** Measures the delay of the main thread's event loop, but only while the delays are requested regularly. */
export class EventLoopDelay {
  #histogram: IntervalHistogram | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** Returns the delays since the last call, in seconds. The first call starts the measurement and returns null. */
  take(): { readonly p50: number; readonly p99: number; readonly max: number } | null {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.stop(), unusedMs);
    this.#timer.unref();
    const histogram = this.#histogram;
    if (histogram === null) {
      this.#histogram = monitorEventLoopDelay({ resolution: resolutionMs });
      this.#histogram.enable();
      return null;
    }
    if (histogram.count === 0) return null;
    const { max } = histogram;
    const taken = {
      p50: delaySeconds(histogram.percentile(50)),
      p99: delaySeconds(histogram.percentile(99)),
      max: delaySeconds(max),
    };
    histogram.reset();
    return taken;
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#histogram?.disable();
    this.#histogram = null;
    this.#timer = null;
  }
}

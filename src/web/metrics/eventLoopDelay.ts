import { monitorEventLoopDelay, type IntervalHistogram } from "node:perf_hooks";

/** In ms. */
const unusedMs = 120_000;
const resolutionMs = 20;

/** The histogram records the time between two ticks, which is the resolution if there is no delay. */
const delaySeconds = (ns: number): number => Math.max(0, ns / 1e9 - resolutionMs / 1000);

/** Measures only while the delays are read regularly. */
export class EventLoopDelay {
  #histogram: IntervalHistogram | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** In seconds, since the last call. The first call returns null. */
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

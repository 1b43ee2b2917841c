import { monitorEventLoopDelay, type IntervalHistogram } from "node:perf_hooks";

/** Without anybody asking for so long, nothing is measured any more, in ms. */
const interestMs = 120_000;
const resolutionMs = 20;

/** What is measured is the time between two ticks of its own clock. */
const late = (ns: number): number => Math.max(0, ns / 1e9 - resolutionMs / 1000);

/** How late the main thread's event loop is; measured only while somebody asks from time to time. */
export class LoopDelay {
  #histogram: IntervalHistogram | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** In seconds, since it was last asked; null the first time. */
  take(): { readonly p50: number; readonly p99: number; readonly max: number } | null {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.stop(), interestMs);
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
      p50: late(histogram.percentile(50)),
      p99: late(histogram.percentile(99)),
      max: late(max),
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

import type { ManagerView } from "../../shared/clusterStatus.js";
import { addDurations, noDurations, quantile, type Durations } from "../../shared/statistics.js";
import type { History as Series, Point } from "../api/schemas.js";

const spanSeconds = 5;
/** An hour of them. */
const mostSpans = 720;

interface Span {
  started: number;
  done: number;
  failed: number;
  gone: number;
  running: number;
  sessions: number;
  due: number | null;
  runs: Durations;
}

/**
 * What a table's manager did in the last hour. Written when something happens, and read when somebody
 * looks: a quiet table costs nothing.
 */
export class History {
  readonly #spans = new Map<number, Span>();
  #last: ManagerView | null = null;

  /** The manager has counted further. */
  add(view: ManagerView): void {
    const last = this.#last;
    this.#last = view;
    const span = this.#current();
    span.running = view.running;
    span.sessions = view.sessions;
    // Fewer than before: another manager, which counts from nothing.
    const fresh = last === null || last.counts.started > view.counts.started;
    const since = (name: "started" | "done" | "failed" | "gone"): number =>
      view.counts[name] - (fresh ? 0 : last.counts[name]);
    span.started += since("started");
    span.done += since("done");
    span.failed += since("failed");
    span.gone += since("gone");
    span.runs = addDurations(span.runs, difference(view.runs, fresh ? noDurations : last.runs));
  }

  /** So many tasks are due now. */
  sample(due: number): void {
    this.#current().due = due;
  }

  read(): Series {
    const now = spanNow();
    const first = now - mostSpans + 1;
    const numbers = Array.from({ length: mostSpans }, (_, index) => first + index);
    let running = 0;
    let sessions = 0;
    for (const [number, span] of this.#spans) {
      if (number < first) ({ running, sessions } = span);
    }
    return {
      spanSeconds,
      points: numbers.map((number): Point => {
        const { runs, ...span } = this.#spans.get(number) ?? { ...emptySpan(), running, sessions };
        ({ running, sessions } = span);
        return {
          at: number * spanSeconds,
          ...span,
          runP50: quantile(runs, 0.5),
          runP95: quantile(runs, 0.95),
        };
      }),
    };
  }

  #current(): Span {
    const now = spanNow();
    const found = this.#spans.get(now);
    if (found !== undefined) return found;
    const { running = 0, sessions = 0 } = [...this.#spans.values()].at(-1) ?? {};
    const span = { ...emptySpan(), running, sessions };
    this.#spans.set(now, span);
    // The last one before the hour tells what ran at its beginning.
    const old = [...this.#spans.keys()].filter((number) => number <= now - mostSpans);
    for (const number of old.slice(0, -1)) this.#spans.delete(number);
    return span;
  }
}

const spanNow = (): number => Math.floor(Date.now() / 1000 / spanSeconds);

const emptySpan = (): Span => ({
  started: 0,
  done: 0,
  failed: 0,
  gone: 0,
  running: 0,
  sessions: 0,
  due: null,
  runs: noDurations,
});

function difference(now: Durations, before: Durations): Durations {
  return {
    counts: now.counts.map((count, bucket) => count - (before.counts[bucket] ?? 0)),
    sum: now.sum - before.sum,
  };
}

import type { ManagerView } from "../../shared/clusterStatus.js";
import {
  addDurations,
  bucketEntries,
  noDurations,
  quantile,
  type BucketCounts,
  type Durations,
} from "../../shared/statistics.js";
import type { Latencies } from "../../tasks/queries/counts.js";
import type { HistoryPoint, TableHistory } from "../api/schemas.js";

const spanSeconds = 5;
/** One hour. */
const maxSpans = 720;

type Measured = "started" | "done" | "failed" | "gone" | "running" | "sessions";

interface Span extends Record<Measured, number>, Pick<HistoryPoint, "due"> {
  runs: Durations;
  waits: Durations;
}

/** Of the last hour. An interval without activity has no entry, so an idle table uses no memory. */
export class History {
  readonly #spans = new Map<number, Span>();
  #last: ManagerView | null = null;
  /** When the manager first reported; nothing is known of the time before. */
  #first = Infinity;

  add(view: ManagerView): void {
    const last = this.#last;
    this.#last = view;
    this.#first = Math.min(this.#first, currentSpanNumber());
    const span = this.#current();
    span.running = view.running;
    span.sessions = view.sessions;
    // If the counter is lower than before, it belongs to a new manager, which counts from zero.
    const isNewManager = last === null || last.counts.started > view.counts.started;
    for (const name of ["started", "done", "failed", "gone"] as const) {
      span[name] += view.counts[name] - (isNewManager ? 0 : last.counts[name]);
    }
    span.runs = addDurations(span.runs, addDurations(view.runs, isNewManager ? noDurations : last.runs, -1));
    span.waits = addDurations(span.waits, addDurations(view.waits, isNewManager ? noDurations : last.waits, -1));
  }

  setDue(due: number): void {
    this.#current().due = due;
  }

  read(): TableHistory {
    const now = currentSpanNumber();
    const first = now - maxSpans + 1;
    const numbers = Array.from({ length: maxSpans }, (_, index) => first + index);
    let running = 0;
    let sessions = 0;
    for (const [number, span] of this.#spans) {
      if (number < first) ({ running, sessions } = span);
    }
    return {
      spanSeconds,
      points: numbers.map((number): HistoryPoint => {
        const { runs, waits, ...span } = this.#spans.get(number) ?? { ...emptySpan(), running, sessions };
        ({ running, sessions } = span);
        return {
          at: number * spanSeconds,
          ...(number < this.#first ? { ...unknown, due: span.due } : span),
          runP50: quantile(runs.counts, 0.5),
          runP95: quantile(runs.counts, 0.95),
          waitP50: quantile(waits.counts, 0.5),
          waitP95: quantile(waits.counts, 0.95),
        };
      }),
    };
  }

  /** Of all runs of the last hour that the manager has reported. Null if there are none. */
  latencies(): Latencies | null {
    const first = currentSpanNumber() - maxSpans + 1;
    const spans = [...this.#spans].filter(
      ([number, { runs }]) => number >= first && bucketEntries(runs.counts).length > 0,
    );
    const [oldest, newest] = [spans[0], spans.at(-1)];
    if (oldest === undefined || newest === undefined) return null;
    const runs = merged(spans.map(([, span]) => span.runs));
    const waits = merged(spans.map(([, span]) => span.waits));
    return {
      runMs: percentiles(runs),
      waitMs: percentiles(waits),
      measured: {
        runs: bucketEntries(runs).reduce((sum, [, count]) => sum + count, 0),
        first: isoTime(oldest[0] * spanSeconds * 1_000),
        last: isoTime(Math.min(Date.now(), (newest[0] + 1) * spanSeconds * 1_000)),
      },
    };
  }

  #current(): Span {
    const now = currentSpanNumber();
    const found = this.#spans.get(now);
    if (found !== undefined) return found;
    const { running = 0, sessions = 0 } = [...this.#spans.values()].at(-1) ?? {};
    const span = { ...emptySpan(), running, sessions };
    this.#spans.set(now, span);
    // One interval before the hour is kept, because it holds the numbers of running tasks and open sessions at the
    // start of the hour.
    const old = [...this.#spans.keys()].filter((number) => number <= now - maxSpans);
    for (const number of old.slice(0, -1)) this.#spans.delete(number);
    return span;
  }
}

const isoTime = (ms: number): string => new Date(ms).toISOString();

function merged(all: readonly Durations[]): BucketCounts {
  const sums: Record<number, number> = {};
  for (const { counts } of all)
    for (const [bucket, count] of bucketEntries(counts)) sums[bucket] = (sums[bucket] ?? 0) + count;
  return sums;
}

function percentiles(counts: BucketCounts): Latencies["runMs"] {
  const [p50, p95] = [quantile(counts, 0.5), quantile(counts, 0.95)];
  return p50 === null || p95 === null ? null : { p50: p50 * 1_000, p95: p95 * 1_000 };
}

const unknown = { started: null, done: null, failed: null, gone: null, running: null, sessions: null };

const currentSpanNumber = (): number => Math.floor(Date.now() / 1000 / spanSeconds);

const emptySpan = (): Span => ({
  started: 0,
  done: 0,
  failed: 0,
  gone: 0,
  running: 0,
  sessions: 0,
  due: null,
  runs: noDurations,
  waits: noDurations,
});

import type { ManagerView } from "../../shared/clusterStatus.js";
import { addDurations, noDurations, quantile, type Durations } from "../../shared/statistics.js";
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
    const since = (name: "started" | "done" | "failed" | "gone"): number =>
      view.counts[name] - (isNewManager ? 0 : last.counts[name]);
    span.started += since("started");
    span.done += since("done");
    span.failed += since("failed");
    span.gone += since("gone");
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

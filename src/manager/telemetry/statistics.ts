import type { FromManager, RunResult } from "../../shared/ipc/messages.js";
import {
  bucketOf,
  durationBounds,
  noCounts,
  type Durations,
  type TaskCounts,
} from "../../shared/statistics.js";
import { elapsedMs } from "../sessions/runTimes.js";

/** How long news is gathered before it is reported, in ms. */
const gatherMs = 200;

class DurationCount {
  #counts = emptyBuckets();
  #sum = 0;

  add(seconds: number): void {
    const bucket = bucketOf(seconds);
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += seconds;
  }

  take(): Durations {
    const taken = { counts: this.#counts, sum: this.#sum };
    this.#counts = emptyBuckets();
    this.#sum = 0;
    return taken;
  }
}

/** Counts what a manager does and reports it in batches; nothing is sent while nothing happens. */
export class Statistics {
  readonly #send: (message: FromManager) => void;
  readonly #now: () => { readonly running: number; readonly sessions: number };
  readonly #claims = new DurationCount();
  readonly #runs = new DurationCount();
  #counts: Record<keyof TaskCounts, number> = { ...noCounts };
  #timer: NodeJS.Timeout | null = null;
  #connected = false;

  /** `now` tells what runs and what is open at the moment of a report. */
  constructor(options: {
    readonly send: (message: FromManager) => void;
    readonly now: () => { readonly running: number; readonly sessions: number };
  }) {
    this.#send = options.send;
    this.#now = options.now;
  }

  /** It has a connection, the first or another one. */
  connected(): void {
    if (this.#connected) this.#count("reconnects", 1);
    this.#connected = true;
  }

  /** A turn is over that began at `since` of performance.now(). */
  turned(turn: { readonly claimed: number; readonly gone: number }, since: number): void {
    this.#count("gone", turn.gone);
    if (turn.claimed === 0) return;
    this.#claims.add((performance.now() - since) / 1000);
    this.#count("started", turn.claimed);
  }

  /** A run came out. */
  ended(result: RunResult): void {
    if (result.outcome !== "ended") return;
    this.#count(result.error === null ? "done" : "failed", 1);
    const ms = result.stop === null ? NaN : elapsedMs(result.start, result.stop);
    if (ms >= 0) this.#runs.add(ms / 1000);
  }

  rescued(tasks: number): void {
    if (tasks === 0) return;
    this.#count("rescued", tasks);
    this.#count("rescues", 1);
  }

  /** What runs or what is open may be another number now. */
  touch(): void {
    if (this.#timer !== null) return;
    this.#timer = setTimeout(() => this.report(), gatherMs);
    this.#timer.unref();
  }

  /** Sends what was counted, at once. */
  report(): void {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#timer = null;
    const counts = this.#counts;
    this.#counts = { ...noCounts };
    this.#send({
      type: "statistics",
      counts,
      claims: this.#claims.take(),
      runs: this.#runs.take(),
      ...this.#now(),
    });
  }

  #count(what: keyof TaskCounts, number: number): void {
    if (number === 0) return;
    this.#counts[what] += number;
    this.touch();
  }
}

const emptyBuckets = (): number[] => Array.from({ length: durationBounds.length + 1 }, () => 0);

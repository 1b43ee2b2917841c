import {
  anyGroupQueue,
  cycleTimeWeight,
  lowWaterMark,
  medianStep,
  minRunMs,
  ownGroupQueue,
  runTimeWeight,
} from "../model/tuning.js";

const maxGroups = 10_000;

interface Average {
  ms: number;
  runs: number;
}

/** Estimates how long runs of each group, all runs and cycles take, from the recent ones. */
export class RunTimes {
  readonly #groups = new Map<number, Average>();
  readonly #all: Average = { ms: 0, runs: 0 };
  #medianMs = 0;
  #cycleMs = 0;

  addCycle(ms: number): void {
    this.#cycleMs += (ms - this.#cycleMs) * cycleTimeWeight;
  }

  /** A session with less queued work than this, in ms, may run out of tasks before the next cycle. */
  get lowWaterMs(): number {
    return this.#scaleToCycle(lowWaterMark);
  }

  /** How much work, in ms, a queue may hold for a task of the same group, which could not start elsewhere. */
  get maxOwnGroupMs(): number {
    return this.#scaleToCycle(ownGroupQueue);
  }

  /** How much work, in ms, a queue may hold for a task of any group, which could start elsewhere. */
  get maxAnyGroupMs(): number {
    return this.#scaleToCycle(anyGroupQueue);
  }

  #scaleToCycle({ min, max, cycles }: typeof lowWaterMark): number {
    return Math.min(max, Math.max(min, cycles * this.#cycleMs));
  }

  add(hash: number, ms: number): void {
    let average = this.#groups.get(hash);
    if (average === undefined) {
      average = { ms: 0, runs: 0 };
      this.#groups.set(hash, average);
      if (this.#groups.size > maxGroups) this.#groups.delete(this.#groups.keys().next().value ?? hash);
    }
    count(average, ms);
    count(this.#all, ms);
    const atLeast = Math.max(minRunMs, ms);
    if (this.#all.runs === 1) this.#medianMs = atLeast;
    else this.#medianMs *= atLeast > this.#medianMs ? 1 + medianStep : 1 - medianStep;
  }

  /** The estimated median of all run times, in ms. It hardly changes if some runs wait for locks or the CPU. */
  get medianMs(): number {
    return this.#medianMs;
  }

  /** Returns the expected run time, in ms, of the group, or of all groups if it has no samples. Null without any. */
  expectedMs(hash: number): number | null {
    const { ms, runs } = this.#groups.get(hash) ?? this.#all;
    return runs === 0 ? null : Math.max(minRunMs, ms);
  }

  count(hash?: number): number {
    return (hash === undefined ? this.#all : this.#groups.get(hash))?.runs ?? 0;
  }
}

/** The first runs have equal weights, so that the very first run does not dominate. */
function count(average: Average, ms: number): void {
  average.runs += 1;
  average.ms += (ms - average.ms) * Math.max(runTimeWeight, 1 / average.runs);
}

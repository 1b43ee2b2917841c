import {
  anyGroupQueue,
  cycleTimeWeight,
  lowWaterMark,
  medianStep,
  minRunMs,
  ownGroupQueue,
  runTimeWeight,
} from "../model/tuning.js";

/** The number of groups for which the average run time is kept. */
const maxGroups = 10_000;

interface Average {
  ms: number;
  runs: number;
}

/**
 * Keeps recent run times, for each group and for all groups together, and recent cycle times. The expected times of the
 * next runs and cycles are derived from these.
 */
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

  /**
   * How much work, in ms, a session's queue may hold when a task is queued behind other tasks of its group. Such a task
   * could not start in another session.
   */
  get maxOwnGroupMs(): number {
    return this.#scaleToCycle(ownGroupQueue);
  }

  /**
   * How much work, in ms, a session's queue may hold when a task is queued behind tasks of any group. Such a task could
   * also start in another session.
   */
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
      if (this.#groups.size > maxGroups) this.#forgetOldest();
    }
    count(average, ms);
    count(this.#all, ms);
    const atLeast = Math.max(minRunMs, ms);
    if (this.#all.runs === 1) this.#medianMs = atLeast;
    else this.#medianMs *= atLeast > this.#medianMs ? 1 + medianStep : 1 - medianStep;
  }

  /**
   * The estimated median of all run times, in ms. Unlike the mean, the median hardly changes if some runs have to wait
   * for locks or the CPU.
   */
  get medianMs(): number {
    return this.#medianMs;
  }

  /**
   * Returns the expected run time of a task, in ms. Uses the average of the task's group, or of all groups if no
   * group is given or the group has no samples.
   * @returns null if there are no samples.
   */
  expectedMs(hash?: number): number | null {
    const { ms, runs } = this.#average(hash);
    return runs === 0 ? null : Math.max(minRunMs, ms);
  }

  /** Returns the number of samples of the group, or of all groups if none is given. */
  count(hash?: number): number {
    return (hash === undefined ? this.#all : this.#groups.get(hash))?.runs ?? 0;
  }

  #average(hash?: number): Average {
    return (hash === undefined ? undefined : this.#groups.get(hash)) ?? this.#all;
  }

  #forgetOldest(): void {
    for (const hash of this.#groups.keys()) {
      this.#groups.delete(hash);
      return;
    }
  }
}

/** Adds a run to an average. The first runs have equal weights, so that the very first run does not dominate. */
function count(average: Average, ms: number): void {
  average.runs += 1;
  average.ms += (ms - average.ms) * Math.max(runTimeWeight, 1 / average.runs);
}

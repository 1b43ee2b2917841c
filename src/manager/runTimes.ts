/** Of how many groups the run time is remembered. */
const mostGroups = 10_000;
/** How much the newest run counts. */
const weight = 0.1;
/** What a run costs its session at least, in ms, however short its SQL is. */
const leastMs = 0.2;

interface Average {
  ms: number;
  runs: number;
}

/** How long tasks run of late, each group's by themselves: what to expect of the next. */
export class RunTimes {
  readonly #groups = new Map<number, Average>();
  readonly #all: Average = { ms: 0, runs: 0 };

  add(hash: number, ms: number): void {
    let average = this.#groups.get(hash);
    if (average === undefined) {
      average = { ms: 0, runs: 0 };
      this.#groups.set(hash, average);
      if (this.#groups.size > mostGroups) this.#forgetOldest();
    }
    count(average, ms);
    count(this.#all, ms);
  }

  /** What a task of the group is expected to take, in ms; null when nothing is known. */
  expected(hash: number): number | null {
    const average = this.#groups.get(hash) ?? this.#all;
    return average.runs === 0 ? null : Math.max(leastMs, average.ms);
  }

  /** How many runs of the group it goes by. */
  known(hash: number): number {
    return (this.#groups.get(hash) ?? this.#all).runs;
  }

  /** Of all groups, in ms; null when nothing is known. */
  get overall(): number | null {
    return this.#all.runs === 0 ? null : Math.max(leastMs, this.#all.ms);
  }

  #forgetOldest(): void {
    for (const hash of this.#groups.keys()) {
      this.#groups.delete(hash);
      return;
    }
  }
}

/** The first runs count alike, so that the very first does not stand for all. */
function count(average: Average, ms: number): void {
  average.runs += 1;
  average.ms += (ms - average.ms) * Math.max(weight, 1 / average.runs);
}

/** Between two times of the database in ISO 8601 with microseconds, in ms. */
export function elapsedMs(start: string, stop: string): number {
  return Date.parse(stop) - Date.parse(start) + (microseconds(stop) - microseconds(start)) / 1000;
}

/** Those that a Date has no room for. */
const microseconds = (time: string): number => Number(time.slice(23, -1));

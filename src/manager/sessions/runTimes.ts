/** Of how many groups the run time is remembered. */
const mostGroups = 10_000;
/** How much the newest run counts. */
const weight = 0.1;
/** By how much the newest run moves the middle. */
const middleStep = 0.05;
/** What a run costs its session at least, in ms, however short its SQL is. */
const leastMs = 0.2;

/** Runs that are expected to take no longer are short: they may wait behind others, in ms. */
export const shortMs = 5;

/** How much of one turn's time counts. */
const turnWeight = 0.2;

interface Average {
  ms: number;
  runs: number;
}

/** How long tasks run of late, each group's by themselves, and turns: what to expect of the next. */
export class RunTimes {
  readonly #groups = new Map<number, Average>();
  readonly #all: Average = { ms: 0, runs: 0 };
  #middle = 0;
  #turnMs = 0;

  /** A turn has taken so long, in ms. */
  turned(ms: number): void {
    this.#turnMs += (ms - this.#turnMs) * turnWeight;
  }

  /** A session that has less to do than this may run dry before it gets more, in ms. */
  get lowMs(): number {
    return Math.min(60, Math.max(8, 1.5 * this.#turnMs));
  }

  /** How much a session may have to do when tasks of one group wait there that could not start anyway, in ms. */
  get mostOwnMs(): number {
    return Math.min(120, Math.max(25, 3 * this.#turnMs));
  }

  /** The same for tasks that could start if another session were free, in ms. */
  get mostAnyMs(): number {
    return Math.min(100, Math.max(15, 2.5 * this.#turnMs));
  }

  add(hash: number, ms: number): void {
    let average = this.#groups.get(hash);
    if (average === undefined) {
      average = { ms: 0, runs: 0 };
      this.#groups.set(hash, average);
      if (this.#groups.size > mostGroups) this.#forgetOldest();
    }
    count(average, ms);
    count(this.#all, ms);
    const atLeast = Math.max(leastMs, ms);
    if (this.#all.runs === 1) this.#middle = atLeast;
    else this.#middle *= atLeast > this.#middle ? 1 + middleStep : 1 - middleStep;
  }

  /**
   * What about half of all runs take no longer than, in ms: unlike the mean it hardly shows that runs
   * wait for each other, or for the processor.
   */
  get middle(): number {
    return this.#middle;
  }

  /** What a task of the group, or any, is expected to take, in ms; null when nothing is known. */
  expected(hash?: number): number | null {
    const { ms, runs } = this.#average(hash);
    return runs === 0 ? null : Math.max(leastMs, ms);
  }

  /** How many runs of the group, or of all, are known. */
  known(hash?: number): number {
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

/** The first runs count alike, so that the very first does not stand for all. */
function count(average: Average, ms: number): void {
  average.runs += 1;
  average.ms += (ms - average.ms) * Math.max(weight, 1 / average.runs);
}

/** Of a time up to its minute. */
const minuteLength = "2026-01-02T03:04".length;

/** Between two times of the database in ISO 8601 with microseconds, in ms. */
export function elapsedMs(start: string, stop: string): number {
  const secondsMs = (seconds(stop) - seconds(start)) * 1000;
  // Reading the rest would cost more than all else that is done with most runs' times.
  const minute = start.slice(0, minuteLength);
  if (minute.length === minuteLength && stop.startsWith(minute)) return secondsMs;
  return minuteMs(stop) - minuteMs(start) + secondsMs;
}

const seconds = (time: string): number => Number(time.slice(minuteLength + 1, -1));
const minuteMs = (time: string): number => Date.parse(`${time.slice(0, minuteLength)}Z`);

/** Upper bounds of the buckets in which durations are counted, in seconds; beyond them is one more. */
export const durationBounds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
] as const;

/** How long something took, many times over. */
export interface Durations {
  /** How many fell into each bucket of `durationBounds`, and into the one beyond. */
  readonly counts: readonly number[];
  /** Of all of them, in seconds. */
  readonly sum: number;
}

/** What a manager counts. */
export interface TaskCounts {
  /** Claimed and given to a session. */
  readonly started: number;
  readonly done: number;
  readonly failed: number;
  /** Not run since they were not active any more. */
  readonly gone: number;
  /** Orphans that went back to PLAN, or ended as FAIL since they took their session down. */
  readonly rescued: number;
  /** How often some were. */
  readonly rescues: number;
  /** How often the manager's connection was opened again. */
  readonly reconnects: number;
}

/** What a manager tells of itself from time to time while something happens. */
export interface ManagerStatistics {
  /** Since the last report. */
  readonly counts: TaskCounts;
  /** Round trips in which tasks were claimed. */
  readonly claims: Durations;
  /** Runs, from start to stop. */
  readonly runs: Durations;
  /** Tasks that run now, and sessions that are open. */
  readonly running: number;
  readonly sessions: number;
}

export const noCounts: TaskCounts = {
  started: 0,
  done: 0,
  failed: 0,
  gone: 0,
  rescued: 0,
  rescues: 0,
  reconnects: 0,
};

export const noDurations: Durations = { counts: durationBounds.map(() => 0).concat(0), sum: 0 };

/** The bucket a duration in seconds falls into. */
export function bucketOf(seconds: number): number {
  const bucket = durationBounds.findIndex((bound) => seconds <= bound);
  return bucket === -1 ? durationBounds.length : bucket;
}

export function addCounts(a: TaskCounts, b: TaskCounts): TaskCounts {
  return {
    started: a.started + b.started,
    done: a.done + b.done,
    failed: a.failed + b.failed,
    gone: a.gone + b.gone,
    rescued: a.rescued + b.rescued,
    rescues: a.rescues + b.rescues,
    reconnects: a.reconnects + b.reconnects,
  };
}

export function addDurations(a: Durations, b: Durations): Durations {
  return {
    counts: a.counts.map((count, bucket) => count + (b.counts[bucket] ?? 0)),
    sum: a.sum + b.sum,
  };
}

/**
 * The duration in seconds that a part (0 to 1) of them did not exceed, read between the bounds of its
 * bucket; null when there are none.
 */
export function quantile({ counts }: Durations, part: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let before = 0;
  for (const [bucket, count] of counts.entries()) {
    if (count > 0 && before + count >= part * total) {
      const low = durationBounds[bucket - 1] ?? 0;
      const high = durationBounds[bucket] ?? low;
      return low + (high - low) * ((part * total - before) / count);
    }
    before += count;
  }
  return null;
}

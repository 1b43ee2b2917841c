/** Upper bounds of the histogram buckets, in seconds. A further bucket has no upper bound. */
export const durationBounds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
] as const;

export interface Durations {
  /** Of each bucket of `durationBounds`, then of the one without an upper bound. */
  readonly counts: readonly number[];
  /** In seconds. */
  readonly sum: number;
}

/** Counters of a manager. */
export interface TaskCounts {
  /** Claimed tasks. */
  readonly started: number;
  /** Runs that ended without error, including those of which only a rescue has told. */
  readonly done: number;
  /** Runs that ended with an error, also those that are retried, and tasks that reached the crash limit. */
  readonly failed: number;
  /** Tasks that became GONE: they expired, or because of what they waited for, or in a rescue. */
  readonly gone: number;
  /** Tasks that were found to wait for others (column `after`). */
  readonly held: number;
  /** Tasks that waited for others, which have ended. */
  readonly released: number;
  /** Orphans: claimed tasks that were completed or released because their session had died. */
  readonly rescued: number;
  /** Rescues, each of one or more orphans. */
  readonly rescues: number;
  /** How often the manager's connection was reopened. */
  readonly reconnects: number;
}

/** By class of SQLSTATE, the first two characters. */
export type RetryCounts = Readonly<Record<string, number>>;

/** Not sent while nothing happens. Counters are since the last report. */
export interface ManagerStatistics {
  readonly counts: TaskCounts;
  readonly retries: RetryCounts;
  /** Of cycles in which tasks were claimed. */
  readonly claims: Durations;
  readonly runs: Durations;
  /** From the planned time of a run to its start. */
  readonly waits: Durations;
  readonly running: number;
  /** Of the running ones, those that have taken longer than `pg_task.slow`. */
  readonly overruns: number;
  readonly sessions: number;
  /** How many sessions run tasks of each share that has any. Empty without shares. */
  readonly shares: Readonly<Record<string, number>>;
}

export const noCounts: TaskCounts = {
  started: 0,
  done: 0,
  failed: 0,
  gone: 0,
  held: 0,
  released: 0,
  rescued: 0,
  rescues: 0,
  reconnects: 0,
};

export const noDurations: Durations = { counts: durationBounds.map(() => 0).concat(0), sum: 0 };

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
    held: a.held + b.held,
    released: a.released + b.released,
    rescued: a.rescued + b.rescued,
    rescues: a.rescues + b.rescues,
    reconnects: a.reconnects + b.reconnects,
  };
}

export function countRetries(sqlstates: readonly string[]): RetryCounts {
  return sqlstates.reduce<RetryCounts>((counts, code) => addRetries(counts, { [code.slice(0, 2)]: 1 }), {});
}

export function addRetries(a: RetryCounts, b: RetryCounts): RetryCounts {
  return { ...a, ...Object.fromEntries(Object.entries(b).map(([key, count]) => [key, (a[key] ?? 0) + count])) };
}

export function addDurations(a: Durations, b: Durations): Durations {
  return {
    counts: a.counts.map((count, bucket) => count + (b.counts[bucket] ?? 0)),
    sum: a.sum + b.sum,
  };
}

export function quantile({ counts }: Durations, fraction: number): number | null {
  return quantileOf(counts, durationBounds, fraction);
}

/**
 * Estimates a quantile by linear interpolation within its bucket; null if all counts are 0.
 *
 * @param counts numbers in each bucket of `bounds`, then in the one without an upper bound
 * @param fraction 0 to 1
 */
export function quantileOf(counts: readonly number[], bounds: readonly number[], fraction: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let before = 0;
  for (const [bucket, count] of counts.entries()) {
    if (count > 0 && before + count >= fraction * total) {
      const low = bounds[bucket - 1] ?? 0;
      const high = bounds[bucket] ?? low;
      return low + (high - low) * ((fraction * total - before) / count);
    }
    before += count;
  }
  return null;
}

/** Due tasks that nothing prevents from starting but that are not claimed. */
export interface Stall {
  /** When the first of these tasks was found waiting, by the clock of the manager's machine, in ISO 8601. */
  readonly since: string;
  /** Some of the tasks: the first one of each group. */
  readonly tasks: readonly string[];
}

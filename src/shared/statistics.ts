/** Upper bounds of the buckets in the metrics, in seconds. */
export const metricBounds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
] as const;

/** Each bound is at most so many times the one before. */
const growth = 1.05;

/**
 * Upper bounds of the buckets in which durations are counted, in seconds: from 0.1 ms to 30 days, with those of the
 * metrics among them. A further bucket has no upper bound.
 */
export const durationBounds: readonly number[] = [0.0001, ...metricBounds, 30 * 86_400].flatMap((high, index, all) => {
  const low = all[index - 1];
  if (low === undefined) return [high];
  const steps = Math.ceil(Math.log(high / low) / Math.log(growth));
  return Array.from({ length: steps }, (_, step) =>
    step + 1 === steps ? high : low * (high / low) ** ((step + 1) / steps),
  );
});

/** How many durations are in each bucket, by its place in `durationBounds`. Empty buckets are left out. */
export type BucketCounts = Readonly<Record<number, number>>;

export interface Durations {
  readonly counts: BucketCounts;
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

/** Ends of tasks that a webhook has accepted, has not accepted (at each try), or is not told any more. */
export interface WebhookCounts {
  readonly accepted: number;
  readonly failed: number;
  readonly dropped: number;
}

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
  readonly webhooks: Readonly<Record<string, WebhookCounts>>;
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

export const noDurations: Durations = { counts: {}, sum: 0 };

export function bucketOf(seconds: number): number {
  let [low, high] = [0, durationBounds.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (seconds <= (durationBounds[middle] ?? Infinity)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Adds the numbers that have the same name. */
export function addCounts<Name extends string>(
  a: Readonly<Record<Name, number>>,
  b: Readonly<Record<Name, number>>,
): Readonly<Record<Name, number>> {
  const before = new Map(Object.entries<number>(a));
  const sums = Object.entries<number>(b).map(([name, count]) => [name, (before.get(name) ?? 0) + count]);
  return { ...a, ...Object.fromEntries(sums) };
}

export function countRetries(sqlstates: readonly string[]): RetryCounts {
  return sqlstates.reduce<RetryCounts>((counts, code) => addCounts(counts, { [code.slice(0, 2)]: 1 }), {});
}

export function addWebhooks(a: ManagerStatistics["webhooks"], b: ManagerStatistics["webhooks"]): typeof a {
  const sums = Object.entries(b).map(([name, counts]) => {
    const before = a[name];
    return [name, before === undefined ? counts : addCounts(before, counts)] as const;
  });
  return { ...a, ...Object.fromEntries(sums) };
}

/** Buckets in ascending order, because an object has its whole numbers in this order. */
export const bucketEntries = (counts: BucketCounts): (readonly [bucket: number, count: number])[] =>
  Object.entries(counts).map(([bucket, count]) => [Number(bucket), count]);

/** @param sign -1 to subtract */
export function addDurations(a: Durations, b: Durations, sign: 1 | -1 = 1): Durations {
  const counts: Record<number, number> = { ...a.counts };
  for (const [bucket, count] of bucketEntries(b.counts)) {
    const sum = (counts[bucket] ?? 0) + sign * count;
    if (sum === 0) delete counts[bucket];
    else counts[bucket] = sum;
  }
  return { counts, sum: a.sum + sign * b.sum };
}

/**
 * The middle of the bucket in which the quantile is, in seconds, which is off by at most 2.5 %. Null if there are no
 * durations. Shorter ones than the first bound count as none.
 *
 * @param fraction 0 to 1
 */
export function quantile(counts: BucketCounts, fraction: number): number | null {
  const entries = bucketEntries(counts);
  const wanted = fraction * entries.reduce((sum, [, count]) => sum + count, 0);
  let before = 0;
  for (const [bucket, count] of entries) {
    before += count;
    if (before < wanted) continue;
    const low = durationBounds[bucket - 1] ?? 0;
    return Math.sqrt(low * (durationBounds[bucket] ?? low));
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

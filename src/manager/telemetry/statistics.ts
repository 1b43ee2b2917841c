import type { FromManager } from "../../shared/ipc/managerMessages.js";
import type { RunResult } from "../../shared/ipc/run.js";
import {
  addWebhooks,
  bucketOf,
  addCounts,
  countRetries,
  noCounts,
  type ManagerStatistics,
  type RetryCounts,
  type TaskCounts,
  type WebhookCounts,
} from "../../shared/statistics.js";
import type { RescueOutcome } from "../model/tasks.js";
import { elapsedMs } from "../model/elapsedMs.js";

const reportMs = 200;

interface MeasuredDurations {
  counts: Record<number, number>;
  sum: number;
}

function addDuration(durations: MeasuredDurations, seconds: number): void {
  const bucket = bucketOf(seconds);
  durations.counts[bucket] = (durations.counts[bucket] ?? 0) + 1;
  durations.sum += seconds;
}

/** What a report contains besides the load. */
interface Counters extends Record<"claims" | "runs" | "waits", MeasuredDurations> {
  readonly counts: Record<keyof TaskCounts, number>;
  retries: RetryCounts;
  webhooks: ManagerStatistics["webhooks"];
}

const newCounters = (): Counters => ({
  counts: { ...noCounts },
  retries: {},
  webhooks: {},
  claims: { counts: {}, sum: 0 },
  runs: { counts: {}, sum: 0 },
  waits: { counts: {}, sum: 0 },
});

interface StatisticsOptions {
  readonly send: (message: FromManager) => void;
  readonly load: () => Pick<ManagerStatistics, "running" | "overruns" | "sessions" | "shares">;
}

/** Counts what a manager does and reports it in batches. Sends nothing while nothing happens. */
export class Statistics {
  readonly #options: StatisticsOptions;
  #counters = newCounters();
  #timer: NodeJS.Timeout | null = null;
  #connected = false;

  constructor(options: StatisticsOptions) {
    this.#options = options;
  }

  connected(): void {
    if (this.#connected) this.count("reconnects", 1);
    this.#connected = true;
  }

  cycleEnded(cycle: { readonly claimed: number; readonly expired: number }, since: number): void {
    this.count("gone", cycle.expired);
    if (cycle.claimed === 0) return;
    addDuration(this.#counters.claims, (performance.now() - since) / 1000);
    this.count("started", cycle.claimed);
  }

  /** @param planned when the run was to start, in seconds since 1970; null if it had no planned time */
  runEnded(result: RunResult, planned: number | null): void {
    if (result.outcome !== "ended") return;
    const waited = planned === null ? NaN : Date.parse(result.start) / 1000 - planned;
    if (Number.isFinite(waited)) addDuration(this.#counters.waits, Math.max(0, waited));
    this.count(result.error === null ? "done" : "failed", 1);
    const ms = result.stop === null ? NaN : elapsedMs(result.start, result.stop);
    if (ms >= 0) addDuration(this.#counters.runs, ms / 1000);
  }

  retried(sqlstates: readonly string[]): void {
    this.#counters.retries = addCounts(this.#counters.retries, countRetries(sqlstates));
    this.touch();
  }

  told(webhook: string, outcome: keyof WebhookCounts, ends: number): void {
    const counts = { accepted: 0, failed: 0, dropped: 0, [outcome]: ends };
    this.#counters.webhooks = addWebhooks(this.#counters.webhooks, { [webhook]: counts });
    this.touch();
  }

  /** Counts the tasks of a rescue, also as finished, failed or gone, because their runs have no results. */
  rescued(outcomes: readonly RescueOutcome[]): void {
    if (outcomes.length === 0) return;
    const number = (outcome: RescueOutcome): number => outcomes.filter((each) => each === outcome).length;
    this.count("rescued", outcomes.length);
    this.count("rescues", 1);
    this.count("done", number("done"));
    this.count("failed", number("failed"));
    this.count("gone", number("replaced"));
  }

  /** Schedules a report, because the number of running tasks or open sessions may have changed. */
  touch(): void {
    if (this.#timer !== null) return;
    this.#timer = setTimeout(() => this.report(), reportMs);
    this.#timer.unref();
  }

  report(): void {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#timer = null;
    const counters = this.#counters;
    this.#counters = newCounters();
    this.#options.send({ type: "statistics", ...counters, ...this.#options.load() });
  }

  count(name: keyof TaskCounts, number: number): void {
    if (number === 0) return;
    this.#counters.counts[name] += number;
    this.touch();
  }
}

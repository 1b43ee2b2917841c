import { startedReportMs } from "../tuning.js";

interface StartedRun {
  readonly id: string;
  readonly start: string;
  readonly sinceMs: number;
}

/** Reports each run that was queued behind others once it has been running for `startedReportMs`. */
export class StartReporter {
  readonly #report: (id: string, start: string) => void;
  #run: StartedRun | null = null;
  #timer: NodeJS.Timeout | undefined;

  constructor(report: (id: string, start: string) => void) {
    this.#report = report;
  }

  started(id: string, start: string): void {
    this.#run = { id, start, sinceMs: performance.now() };
    this.#timer ??= setTimeout(() => this.#check(), startedReportMs);
  }

  finished(id: string): void {
    if (this.#run?.id === id) this.#run = null;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #check(): void {
    this.#timer = undefined;
    const run = this.#run;
    if (run === null) return;
    const remainingMs = run.sinceMs + startedReportMs - performance.now();
    if (remainingMs > 0) {
      this.#timer = setTimeout(() => this.#check(), Math.ceil(remainingMs));
    } else {
      // The run's result may have arrived but not been read yet.
      setImmediate(() => this.#reportUnlessFinished(run));
    }
  }

  #reportUnlessFinished(run: StartedRun): void {
    if (this.#run === run) {
      this.#run = null;
      this.#report(run.id, run.start);
    } else if (this.#run !== null) this.#check();
  }
}

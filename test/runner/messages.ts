/** What a worker is told: the file to run next, or null if there is none. */
export interface ToWorker {
  readonly file: string | null;
}

/** What a worker says when a file has ended. */
export interface FileResult {
  readonly file: string;
  readonly passed: number;
  readonly failures: readonly Failure[];
  /** Names of the skipped tests, with the reasons. */
  readonly skipped: readonly string[];
  readonly diagnostics: readonly string[];
  readonly seconds: number;
  /** CPU time of the worker and of the processes it has started, without the server's. */
  readonly cpuSeconds: number;
}

interface Failure {
  /** The test's name, after those of the tests it is part of. */
  readonly name: string;
  readonly error: string;
}

import type { Times } from "./times.js";

/** What a worker is told: the file to run next, or null if there is none. */
export interface ToWorker {
  readonly file: string | null;
}

/** What a worker says: which test has begun, or how a file has ended. */
export type FromWorker = { readonly begun: string } | FileResult;

/** What a worker says when a file has ended. The times are those of the worker, without the server's. */
export interface FileResult extends Times {
  readonly file: string;
  readonly passed: number;
  readonly failures: readonly Failure[];
  /** Names of the skipped tests, with the reasons. */
  readonly skipped: readonly string[];
  readonly diagnostics: readonly string[];
}

interface Failure {
  /** The test's name, after those of the tests it is part of. */
  readonly name: string;
  readonly error: string;
}

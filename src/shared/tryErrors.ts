/** The error of a try after which the task was tried again, as an entry of the column `errors`. */
export interface TryError {
  /** When the try started: ISO 8601, in the time zone of the manager's session. */
  readonly start: string | null;
  /** When the try ended, in the same form. */
  readonly stop: string;
  /** The error's SQLSTATE. */
  readonly sqlstate: string;
  /** The beginning of the error. */
  readonly error: string;
}

/** Returns the entries of a column `errors`, the oldest first, or null if a user's own column holds anything else. */
export function readTryErrors(value: unknown): readonly TryError[] | null {
  return Array.isArray(value) && value.every(isTryError) ? value : null;
}

const isTryError = (entry: unknown): entry is TryError =>
  typeof entry === "object" &&
  entry !== null &&
  "start" in entry &&
  (entry.start === null || typeof entry.start === "string") &&
  "stop" in entry &&
  typeof entry.stop === "string" &&
  "sqlstate" in entry &&
  typeof entry.sqlstate === "string" &&
  "error" in entry &&
  typeof entry.error === "string";

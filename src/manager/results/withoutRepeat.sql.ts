import type { DatabaseError } from "pg";
import { isTransient } from "../../shared/postgres/transientErrors.js";

/** What a statement that settles a task leaves undone, since the server has refused it. */
export interface Spared {
  /** The pause of its group is left to `pauseLater`. */
  readonly pause: boolean;
  /** A task that repeats is not planned again, and its `error` ends with this; null where it is. */
  readonly repetition: string | null;
  /** A row that says that it is to be deleted stays. */
  readonly deletion: boolean;
}

export const nothingSpared: Spared = { pause: false, repetition: null, deletion: false };

/**
 * What a task's `error` says of a repetition that was refused.
 *
 * @throws the refusal itself where it may pass by itself: then it is to be tried again.
 */
export function withoutRepeat(error: DatabaseError): string {
  if (isTransient(error)) throw error;
  const lines = [`ERROR:  repetition was not planned: ${error.message}`];
  if (error.detail !== undefined) lines.push(`DETAIL:  ${error.detail}`);
  return lines.map((line) => line.replaceAll("\n", "\n\t")).join("\n");
}

/** SQL of an error with a note behind it, either of which may be null. */
export const withNote = (error: string, note: string): string =>
  `CASE WHEN ${note} IS NULL THEN ${error} ELSE concat_ws(E'\\n', ${error}, ${note}) END`;

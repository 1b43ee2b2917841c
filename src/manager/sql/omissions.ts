import type { DatabaseError } from "pg";
import { checkOptionViolation, checkViolation, notNullViolation } from "../../shared/postgres/sqlStates.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";

/** What a statement that ends tasks omits, because the server has rejected it. */
export interface Omissions {
  /** Whether the group's pause is omitted. If so, it is deferred. */
  readonly pause: boolean;
  /**
   * A note that replaces the successor of a repeating task and is appended to the column `error`. Null means that the
   * successor is inserted.
   */
  readonly repetition: string | null;
  /** Whether a row with `delete` is kept instead of deleted. */
  readonly deletion: boolean;
}

export const noOmissions: Omissions = { pause: false, repetition: null, deletion: false };

/**
 * Returns a note for the column `error` of a task whose successor could not be inserted.
 *
 * @throws the rejection itself if it is transient; then inserting the successor must be tried again
 */
export function rejectedRepeatNote(rejection: DatabaseError): string {
  if (isTransient(rejection)) throw rejection;
  const lines = [`ERROR:  next run was not planned: ${rejection.message}`];
  if (rejection.detail !== undefined && !showsRow(rejection)) lines.push(`DETAIL:  ${rejection.detail}`);
  return lines.map((line) => line.replaceAll("\n", "\n\t")).join("\n");
}

/** Whether the detail contains the values of the whole row, of which `remote` may contain a password. */
const showsRow = ({ code = "" }: DatabaseError): boolean =>
  [notNullViolation, checkViolation, checkOptionViolation].includes(code);

/**
 * SQL of an error text with a note in a new line. If the note is null, the error text is unchanged. If the error text
 * is null, the note alone remains.
 */
export const appendNote = (error: string, note: string): string =>
  `CASE WHEN ${note} IS NULL THEN ${error} ELSE concat_ws(E'\\n', ${error}, ${note}) END`;

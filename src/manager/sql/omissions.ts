import type { DatabaseError } from "pg";
import { checkOptionViolation, checkViolation, notNullViolation } from "../../shared/postgres/sqlStates.js";
import { owedPrefix } from "../schema/owedTable.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";

/** What a statement that ends tasks omits, because the server has rejected it. */
export interface Omissions {
  /** Whether the group's pause is deferred. */
  readonly pause: boolean;
  /** The note in `error` that says that the successor is owed. Null if it is inserted. */
  readonly repetition: string | null;
  /** Whether a row with `delete` is kept instead of deleted. */
  readonly deletion: boolean;
  /** Whether a task becomes FAIL although it has tries left. */
  readonly retry: boolean;
}

export const noOmissions: Omissions = { pause: false, repetition: null, deletion: false, retry: false };

/** @throws the rejection itself if it is transient; then inserting the successor must be tried again */
export function rejectedRepeatNote(rejection: DatabaseError): string {
  if (isTransient(rejection)) throw rejection;
  const lines = [`${owedPrefix}${rejection.message}`];
  if (rejection.detail !== undefined && !showsRow(rejection)) lines.push(`DETAIL:  ${rejection.detail}`);
  return lines.map((line) => line.replaceAll("\n", "\n\t")).join("\n");
}

/** SQL of a CTE, with a comma in front, that records ended tasks whose successors are owed. Empty without a note. */
export const owedCte = ({ qualifiedOwed }: TaskTable, repetition: string | null, ids: string): string =>
  repetition === null ? "" : `, owed AS (INSERT INTO ${qualifiedOwed} (task) ${ids} ON CONFLICT DO NOTHING)`;

/** Whether the detail contains the values of the whole row, of which `remote` may contain a password. */
const showsRow = ({ code = "" }: DatabaseError): boolean =>
  [notNullViolation, checkViolation, checkOptionViolation].includes(code);

/** SQL of an error text with a note in a new line. Either may be null. */
export const appendNote = (error: string, note: string): string =>
  `CASE WHEN ${note} IS NULL THEN ${error} ELSE concat_ws(E'\\n', ${error}, ${note}) END`;

import type { RunResult } from "../../shared/ipc/run.js";
import { transientSqlStates } from "../../shared/postgres/transientErrors.js";
import type { OwnedResult } from "../model/tasks.js";
import { owedPrefix } from "../schema/owedTable.js";
import { serverErrorClasses } from "../sql/rejectedRows.js";

/** Matches the last part of an error of `ruleInput`: the statement, with the query between what pg-task puts around it. */
const wrappedStatement =
  /\nSTATEMENT: {2}(SET LOCAL transaction_read_only = on; (?:[^\n]*)\(\(\n\t)([^]*)\n\t\)::pg_catalog\.timestamptz\)[^\n]*$/;

/** Matches the first line of an error, with the lines that continue it, up to the position. */
const positionInStatement = /^([^\n]*(?:\n\t[^\n]*)*) at character ([0-9]+)(?=\n|$)/;

/**
 * Returns the result of a run that was the query of a rule as the user has to see it. The query stood in a longer
 * statement (`ruleInput`). If it has failed, the output is empty, as that of any task that fails without rows, and the
 * error shows the query alone, with the position in it.
 *
 * An error that can pass, such as a lock timeout, must not end the schedule: the query runs again, as it does if the
 * server has rejected what it returned.
 */
export function ruleQueryResult(result: RunResult): RunResult & Pick<OwnedResult, "owedNote"> {
  if (result.outcome !== "ended" || result.error === null) return result;
  const error = errorOfQuery(result.error);
  if (!canPass(result.sqlstate)) return { ...result, output: "", error };
  const reason = error.replace(/^[A-Z]+: {2}/, "").replace(/\nSTATEMENT: {2}[^]*$/, "");
  return { ...result, output: "", error: null, owedNote: `${owedPrefix}${reason}` };
}

const canPass = (sqlstate: string | null): boolean =>
  sqlstate !== null && (transientSqlStates.has(sqlstate) || serverErrorClasses.test(sqlstate));

function errorOfQuery(error: string): string {
  const match = wrappedStatement.exec(error);
  if (match === null) return error;
  const [, opening = "", query = ""] = match;
  const head = error.slice(0, match.index);
  // The server knows nothing of the tabs before continued lines.
  const before = countCharacters(opening) - 1;
  const length = countCharacters(query.replaceAll("\n\t", "\n"));
  const shown = head.includes("\nQUERY:  ")
    ? head
    : head.replace(positionInStatement, (_, message: string, position: string) => {
        const inQuery = Number(position) - before;
        return inQuery >= 1 && inQuery <= length ? `${message} at character ${inQuery}` : message;
      });
  return `${shown}\nSTATEMENT:  ${query}`;
}

/** Counts characters as the server does, for which one beyond U+FFFF is one character, not two. */
const countCharacters = (text: string): number => Array.from(text).length;

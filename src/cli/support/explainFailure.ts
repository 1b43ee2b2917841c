import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";

const wordsOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

/** What a command's statement failed of, as an error of pg-task's; one that already is stays. */
export function explainFailure(error: unknown, table: TaskTable): unknown {
  if (error instanceof PgTaskError) return error;
  const state = sqlState(error);
  const words = wordsOf(error);
  if (state === null) {
    if (!/terminated|ECONNRESET|EPIPE|not queryable|Connection/i.test(words)) return error;
    return new PgTaskError("CONNECTION_LOST", `the server's connection ended: ${words}`, {
      cause: error,
    });
  }
  const options = { cause: error, sqlState: state };
  const said = `${words} (SQLSTATE ${state})`;
  if (state === "42501") {
    return new PgTaskError(
      "SCHEMA_NOT_ALLOWED",
      `not allowed on ${table.qualified}: ${said}`,
      options,
    );
  }
  if (state === "55P03") {
    return new PgTaskError(
      "SCHEMA_LOCKED",
      `${table.qualified} is locked by somebody: ${said}; try again`,
      options,
    );
  }
  // Data exceptions: a value that was given is none of its type, or out of range.
  if (state.startsWith("22"))
    return new PgTaskError("USAGE", `the server takes no such value: ${said}`, options);
  return new PgTaskError("STATEMENT_FAILED", said, options);
}

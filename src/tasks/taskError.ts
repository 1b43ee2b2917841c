import type { TaskTable } from "../manager/schema/taskTable.js";
import { isServerError, sqlState } from "../shared/postgres/client.js";
import {
  failedTransaction,
  insufficientPrivilege,
  invalidSchemaName,
  lockNotAvailable,
  undefinedColumn,
  undefinedTable,
} from "../shared/postgres/sqlStates.js";
import { errorMessage, isConnectionLoss, PgTaskError } from "../shared/errors.js";

/** What to do if a column of pg-task's is missing, because it was dropped or renamed. */
export const missingColumnHint = "pg-task doctor says which columns the table lacks";

/** Converts the failure of a statement about tasks. Returns any other error unchanged. */
export function toTaskError(error: unknown, table: TaskTable): unknown {
  if (error instanceof PgTaskError) return error;
  const state = sqlState(error);
  if (state === null) {
    if (!isConnectionLoss(error)) return error;
    return new PgTaskError("CONNECTION_LOST", `connection to the server lost: ${error.message}`, {
      cause: error,
    });
  }
  const options = { cause: error, sqlState: state };
  const details = `${errorMessage(error)} (SQLSTATE ${state})`;
  if (endsConnection(state)) {
    return new PgTaskError("CONNECTION_LOST", `connection to the server lost: ${details}`, options);
  }
  if (state === insufficientPrivilege) {
    return new PgTaskError("SCHEMA_NOT_ALLOWED", `permission denied on ${table.qualified}: ${details}`, options);
  }
  if (state === undefinedTable || state === invalidSchemaName) {
    const hint = "pg-task start creates it; is this the right database and table?";
    return new PgTaskError("SCHEMA_MISSING", `no table ${table.qualified}: ${details}: ${hint}`, options);
  }
  if (state === lockNotAvailable) {
    return new PgTaskError(
      "SCHEMA_LOCKED",
      `${table.qualified} is locked by another transaction: ${details}; try again`,
      options,
    );
  }
  if (state === undefinedColumn) {
    return new PgTaskError("STATEMENT_FAILED", `${details}: ${missingColumnHint}`, options);
  }
  if (state === failedTransaction) {
    const hint = "an earlier statement of the transaction has failed: ROLLBACK first";
    return new PgTaskError("STATEMENT_FAILED", `${details}: ${hint}`, options);
  }
  // A data exception means that a given value is invalid for its type or out of range.
  if (state.startsWith("22")) return new PgTaskError("USAGE", `invalid value: ${details}`, options);
  return new PgTaskError("STATEMENT_FAILED", `${details}${fullQueueHint(error)}`, options);
}

/**
 * For a commit that failed because the server's queue of notifications is full; else empty. Since PostgreSQL 13, the
 * server empties the queue after notifications have been added, which a full one refuses, or when it is asked how full
 * the queue is.
 */
export const fullQueueHint = (error: unknown): string =>
  isServerError(error) && error.code === "54000" && error.routine === "PreCommit_Notify"
    ? ": pg-task doctor names the session that keeps the queue from being emptied; this passes when that session has ended its transaction, and pg-task doctor is run after that"
    : "";

export const endsConnection = (state: string): boolean => /^(?:57P0[1-5]|25P0[34]|08)/.test(state);

import { types } from "node:util";
import { errorDefinitions, exitCodes, type ErrorCode, type ErrorFamily } from "./errorCodes.js";

/** An error with a code. Its message states what was expected and where, what was found instead, and what to do. */
export class PgTaskError extends Error {
  /** What has happened (docs/errors.md). */
  readonly code: ErrorCode;
  /** Kind of the error. */
  readonly family: ErrorFamily;
  /** Whether a retry can succeed without any action by the user. */
  readonly retryable: boolean;
  /** The SQLSTATE of the server error that caused this error, if any. */
  readonly sqlState: string | undefined;
  /** What to do about this very error, if the remedy of its code is also for other causes. */
  readonly remedy: string | undefined;

  /** Creates an error. Its family and whether it can be retried follow from the code. */
  constructor(
    code: ErrorCode,
    message: string,
    options?: { cause?: unknown; sqlState?: string | undefined; remedy?: string | undefined },
  ) {
    super(message, options);
    this.name = "PgTaskError";
    this.code = code;
    this.sqlState = options?.sqlState;
    this.remedy = options?.remedy;
    this.family = errorDefinitions[code].family;
    this.retryable = errorDefinitions[code].retryable && !needsUser(code, this.sqlState);
  }

  /** Exit code of a command that ends with this error. */
  get exitCode(): number {
    return exitCodes[this.family];
  }
}

/**
 * SQLSTATEs with which a server refuses a connection until somebody changes something: an unsupported or invalid
 * option, a wrong password or role, a missing database or privilege, a database that accepts no connections or was
 * dropped.
 */
const lastingRefusals = /^(?:0A|22|28|3D|42|55000|57P04)/;

/** The transaction is read-only, or was aborted by an earlier error. */
const transactionRefusals = new Set(["25006", "25P02"]);

/** Whether only a user's action can help. Without a SQLSTATE, the password of a connection is missing. */
function needsUser(code: ErrorCode, sqlState: string | undefined): boolean {
  if (code === "STATEMENT_FAILED") return sqlState !== undefined && transactionRefusals.has(sqlState);
  if (errorDefinitions[code].family !== "CONNECTION") return false;
  return sqlState === undefined ? code === "CONNECTION_REJECTED" : lastingRefusals.test(sqlState);
}

/** The same error in other words. */
export const withMessage = ({ code, cause, sqlState, remedy }: PgTaskError, message: string): PgTaskError =>
  new PgTaskError(code, message, { cause, sqlState, remedy });

export interface ErrorReport {
  readonly code: ErrorCode;
  readonly message: string;
  readonly sqlState?: string;
}

export function toReport(error: unknown): ErrorReport {
  if (error instanceof PgTaskError) {
    const { code, message, sqlState } = error;
    return { code, message, ...(sqlState === undefined ? {} : { sqlState }) };
  }
  if (isError(error) && "severity" in error && "code" in error) {
    const sqlState = String(error.code);
    return {
      code: "STATEMENT_FAILED",
      message: `${error.message} (SQLSTATE ${sqlState})`,
      sqlState,
    };
  }
  if (isConnectionLoss(error)) {
    const message = lossMessages.test(error.message) ? "the connection ended" : error.message;
    return { code: "CONNECTION_LOST", message };
  }
  return { code: "INTERNAL", message: isError(error) ? (error.stack ?? error.message) : String(error) };
}

/** Test runners such as Jest run programs in a context of its own, in which Node's errors are no instances of Error. */
export function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

export function fromReport(report: ErrorReport): PgTaskError {
  const { code, message, sqlState } = report;
  return new PgTaskError(code, message, { sqlState });
}

const lossErrorCodes = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "ECONNABORTED", "ENETRESET"]);
const lossMessages = /^Connection terminated|is not queryable$/;

/** False for errors of pg-task and of the server. */
export function isConnectionLoss(error: unknown): error is Error {
  if (!isError(error)) return false;
  return lossMessages.test(error.message) || ("code" in error && lossErrorCodes.has(String(error.code)));
}

export function systemErrorCode(error: unknown): string {
  const hasCode = isError(error) && "code" in error && typeof error.code === "string";
  return hasCode ? String(error.code) : "";
}

/** Node reports a failure to connect to several addresses as an AggregateError with an empty message. */
export function partsOfError(error: unknown): unknown[] | null {
  return isError(error) && "errors" in error && Array.isArray(error.errors) ? error.errors : null;
}

export function errorMessage(error: unknown): string {
  return isError(error) ? error.message : String(error);
}

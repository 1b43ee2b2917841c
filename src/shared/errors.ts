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
  /**
   * What to do about this very error, if the remedy of its code is also for other causes. The message may end with it,
   * after a colon.
   */
  readonly remedy: string | undefined;

  /** Creates an error. Its family and whether it can be retried follow from the code. */
  constructor(code: ErrorCode, message: string, options?: { cause?: unknown; sqlState?: string; remedy?: string }) {
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
 * SQLSTATEs with which a server refuses a connection until somebody changes something: an unsupported or invalid option,
 * a wrong password or role (class 28), a missing database (3D), a missing privilege, a database that accepts no
 * connections or was dropped.
 */
const lastingRefusals = /^(?:0A|22|28|3D|42|55000|57P04)/;

/**
 * SQLSTATEs with which a server refuses a statement until the transaction is ended: it is read-only, or has been aborted by
 * an earlier error.
 */
const transactionRefusals = new Set(["25006", "25P02"]);

/**
 * Whether a connection or statement can only succeed after a user's action. Without a SQLSTATE, the password of a
 * connection is missing.
 */
function needsUser(code: ErrorCode, sqlState: string | undefined): boolean {
  if (code === "STATEMENT_FAILED") return sqlState !== undefined && transactionRefusals.has(sqlState);
  if (errorDefinitions[code].family !== "CONNECTION") return false;
  return sqlState === undefined ? code === "CONNECTION_REJECTED" : lastingRefusals.test(sqlState);
}

/** An error in the form in which threads send it to each other. */
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
  return { code: "INTERNAL", message: withStack(error) };
}

/**
 * Whether a value is an error. Test runners such as Jest run programs in a context of its own, in which errors of Node's
 * own modules are no instances of Error.
 */
export function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

export function fromReport(report: ErrorReport): PgTaskError {
  const { code, message, sqlState } = report;
  return new PgTaskError(code, message, sqlState === undefined ? {} : { sqlState });
}

/** The operating system's error codes for a lost connection. */
const lossErrorCodes = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "ECONNABORTED", "ENETRESET"]);
/** The pg driver's messages for a lost connection. */
const lossMessages = /^Connection terminated|is not queryable$/;

/**
 * Whether an error of the operating system or the driver means that the connection is lost. False for errors of pg-task
 * and of the server.
 */
export function isConnectionLoss(error: unknown): error is Error {
  if (!isError(error)) return false;
  return lossMessages.test(error.message) || ("code" in error && lossErrorCodes.has(String(error.code)));
}

/** Returns the stack of an unexpected error, or its message if it has no stack. */
function withStack(error: unknown): string {
  if (!isError(error)) return String(error);
  return error.stack ?? error.message;
}

/** Returns the operating system's error code, such as `ENOENT`, or an empty string if there is none. */
export function systemErrorCode(error: unknown): string {
  const hasCode = isError(error) && "code" in error && typeof error.code === "string";
  return hasCode ? String(error.code) : "";
}

/**
 * The errors of a failure to connect to a host with several addresses, for which Node reports an AggregateError with an
 * empty message; null for other errors.
 */
export function partsOfError(error: unknown): unknown[] | null {
  return isError(error) && "errors" in error && Array.isArray(error.errors) ? error.errors : null;
}

export function errorMessage(error: unknown): string {
  return isError(error) ? error.message : String(error);
}

/** What kind of thing went wrong; decides the exit code of a command that ends with it. */
export type ErrorFamily =
  | "CONFIG"
  | "LEADERSHIP"
  | "CONNECTION"
  | "SCHEMA"
  | "PROTOCOL"
  | "INTERNAL";

/** Exit code of the process for each family (0 is a clean stop). */
export const exitCodes: Readonly<Record<ErrorFamily, number>> = {
  CONFIG: 2,
  CONNECTION: 3,
  SCHEMA: 4,
  LEADERSHIP: 70,
  PROTOCOL: 70,
  INTERNAL: 70,
};

interface ErrorKind {
  readonly family: ErrorFamily;
  /** Whether the same attempt may succeed later without anybody changing anything. */
  readonly retryable: boolean;
  /** When it happens, for docs/errors.md. */
  readonly when: string;
  /** What to do about it, for docs/errors.md. */
  readonly remedy: string;
}

const kind = (
  family: ErrorFamily,
  retryable: boolean,
  when: string,
  remedy: string,
): ErrorKind => ({ family, retryable, when, remedy });

/** Every error pg-task itself raises. A task's own error is data and never stands here. */
export const errorKinds = {
  CONFIG_FILE_UNREADABLE: kind(
    "CONFIG",
    false,
    "the configuration file cannot be read",
    "check the path and its permissions",
  ),
  CONFIG_SYNTAX: kind(
    "CONFIG",
    false,
    "the configuration file is not JSON",
    "mend the file at the line and column named",
  ),
  CONFIG_INVALID: kind(
    "CONFIG",
    false,
    "a key is unknown, or a value has the wrong type or is out of range",
    "see docs/configuration.md for what is allowed",
  ),
  CONFIG_CONFLICT: kind("CONFIG", false, "two settings exclude each other", "keep one of the two"),
  CONFIG_MISSING: kind(
    "CONFIG",
    false,
    "nothing says which server a command means, and no embedded one runs for the working folder",
    "give --config, DATABASE_URL or PG* variables, or start one with pg-task start",
  ),
  USAGE: kind(
    "CONFIG",
    false,
    "an argument or option of a command makes no sense",
    "see the command's --help",
  ),
  EMBEDDED_UNAVAILABLE: kind(
    "CONFIG",
    false,
    "no embedded PostgreSQL is installed for this platform",
    "install with optional dependencies, or give a url",
  ),
  EMBEDDED_PORT_TAKEN: kind(
    "CONFIG",
    false,
    "the embedded server's port is in use",
    "give another --port, or none",
  ),
  EMBEDDED_DATA_IN_USE: kind(
    "CONFIG",
    false,
    "another process runs a server on the data folder",
    "stop that one, or give another --data",
  ),
  EMBEDDED_DATA_VERSION: kind(
    "CONFIG",
    false,
    "the data folder belongs to another PostgreSQL major version",
    "give another --data, or pg_upgrade it",
  ),
  EMBEDDED_DATA_UNWRITABLE: kind(
    "CONFIG",
    false,
    "the data folder cannot be created or written",
    "give a folder that can be written",
  ),
  EMBEDDED_DATA_FOREIGN: kind(
    "CONFIG",
    false,
    "the data folder holds something else than a PostgreSQL data folder",
    "give another --data, or an empty folder",
  ),
  EMBEDDED_FAILED: kind(
    "INTERNAL",
    false,
    "the embedded server did not start, or ended unexpectedly",
    "read the server's own words in the message",
  ),
  CONNECTION_FAILED: kind(
    "CONNECTION",
    true,
    "the server cannot be reached",
    "check host and port, and that the server runs",
  ),
  CONNECTION_REJECTED: kind(
    "CONNECTION",
    true,
    "the server answered and refused the connection (password, role, database, pg_hba.conf, too many clients)",
    "mend what the message names: the password (`ALTER ROLE … PASSWORD` sets a role's), role, database or pg_hba.conf",
  ),
  CONNECTION_LOST: kind(
    "CONNECTION",
    true,
    "an open connection ended unexpectedly",
    "nothing: pg-task connects again",
  ),
  CONNECTION_POOLED: kind(
    "CONNECTION",
    true,
    "a connection goes through a pooler",
    "give pg-task the server's own address; producers may go on using the pooler",
  ),
  LEADERSHIP_LOST: kind(
    "LEADERSHIP",
    true,
    "the connection that holds an advisory lock ended",
    "nothing: pg-task takes the lock again or stands by",
  ),
  LEADERSHIP_HELD: kind(
    "LEADERSHIP",
    true,
    "a manager of another cluster, or of one that is just ending, works on the table",
    "nothing: pg-task takes the table over when that one goes; where that is not wanted, end one of the two or name another table",
  ),
  SCHEMA_UNSUPPORTED_SERVER: kind(
    "SCHEMA",
    false,
    "the server is older than PostgreSQL 12",
    "use PostgreSQL 12 or later",
  ),
  SCHEMA_MISSING: kind(
    "SCHEMA",
    true,
    "the table is not there, or not made ready yet, or something is missing that the entry says not to create",
    'let pg-task start create it; with "create": false, create it yourself or drop that',
  ),
  SCHEMA_NOT_ALLOWED: kind(
    "SCHEMA",
    true,
    "the entry's or the control connection's user may not create, change or use what is needed",
    "grant the right named in the message, or create it yourself",
  ),
  SCHEMA_NOT_CREATED: kind(
    "SCHEMA",
    true,
    "the server refused to create a role or database for another reason than a missing right",
    "see the statement and the server's own words in the message; pg-task tries again",
  ),
  SCHEMA_LOCKED: kind(
    "SCHEMA",
    true,
    "somebody holds a lock on the table, and the change waits its turn",
    "nothing: pg-task tries again",
  ),
  STATEMENT_FAILED: kind(
    "SCHEMA",
    true,
    "the server refused a statement of pg-task's own, say since the table was dropped",
    "read the server's own words in the message",
  ),
  SCHEMA_INCOMPATIBLE: kind(
    "SCHEMA",
    false,
    "the table has a shape pg-task cannot use",
    "run the statements named in the message",
  ),
  PROTOCOL_ACK_TIMEOUT: kind(
    "PROTOCOL",
    true,
    "a started thread did not take its parameters in time",
    "nothing: the thread is ended and started again; raise pg_conf.close or pg_work.close on a slow machine",
  ),
  PROTOCOL_PAYLOAD: kind(
    "PROTOCOL",
    false,
    "a handed over payload is not what its reader expects",
    "report it",
  ),
  THREAD_DIED: kind(
    "INTERNAL",
    true,
    "a manager or executor thread ended unexpectedly",
    "nothing: it is started again and its tasks are found",
  ),
  START_ABORTED: kind(
    "INTERNAL",
    false,
    "something was stopped before it had started",
    "nothing: the stop was asked for",
  ),
  INTERNAL: kind("INTERNAL", false, "a bug in pg-task", "report it with the log"),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorKinds;

/** The one error class of pg-task: says what was expected, where, what came instead, what to do. */
export class PgTaskError extends Error {
  readonly code: ErrorCode;
  readonly family: ErrorFamily;
  readonly retryable: boolean;
  /** Of the server's refusal that is behind it, where there is one. */
  readonly sqlState: string | undefined;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown; sqlState?: string }) {
    super(message, options);
    this.name = "PgTaskError";
    this.code = code;
    this.sqlState = options?.sqlState;
    this.family = errorKinds[code].family;
    this.retryable = errorKinds[code].retryable;
  }

  get exitCode(): number {
    return exitCodes[this.family];
  }
}

/** An error as it crosses a thread boundary. */
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
  if (error instanceof Error && "severity" in error && "code" in error) {
    const sqlState = String(error.code);
    return {
      code: "STATEMENT_FAILED",
      message: `${error.message} (SQLSTATE ${sqlState})`,
      sqlState,
    };
  }
  if (isLoss(error)) {
    const message = lossWords.test(error.message) ? "the connection ended" : error.message;
    return { code: "CONNECTION_LOST", message };
  }
  return { code: "INTERNAL", message: wordsOf(error) };
}

/** What the system, or the driver in words of its own, says of a connection that has gone. */
const lossCodes = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "ECONNABORTED", "ENETRESET"]);
const lossWords = /^Connection terminated|is not queryable$/;

/** Whether the system or the driver says so; what pg-task or the server says of a loss is none of these. */
export function isLoss(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  return lossWords.test(error.message) || ("code" in error && lossCodes.has(String(error.code)));
}

/** Of what should not have happened it matters where it did. */
function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.stack ?? error.message;
}

export function fromReport(report: ErrorReport): PgTaskError {
  const { code, message, sqlState } = report;
  return new PgTaskError(code, message, sqlState === undefined ? {} : { sqlState });
}

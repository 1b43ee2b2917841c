import { existsSync } from "node:fs";
import { LoginRefused } from "./auth/login.js";
import { passwordFileProblem } from "./target/passwordFile.js";
import { type ConnectionTarget, describeTarget } from "./target/target.js";
import { isError, partsOfError, PgTaskError, systemErrorCode } from "../errors.js";
import { explainSystemError } from "../systemErrors.js";
import { identifier } from "./quoting.js";

export function pooledError(target: ConnectionTarget, what: string, cause?: unknown): PgTaskError {
  return new PgTaskError(
    "CONNECTION_POOLED",
    `expected the server itself at ${describeTarget(target)}, but a pooler such as PgBouncer is there ` +
      `(the connection ${what}): give the server's own address to pg-task; clients that insert tasks ` +
      "may use the pooler",
    { cause },
  );
}

const alterRole = ({ user }: ConnectionTarget): string => `ALTER ROLE ${identifier(user)} PASSWORD '…'`;

/** Returns why nobody can log in as a role of this name; null if somebody can. */
export const whyReserved = (user: string): string | null =>
  user.startsWith("pg_")
    ? "PostgreSQL reserves names that begin with pg_, so this role cannot be created: choose another name"
    : null;

export function rejectedError(
  target: ConnectionTarget,
  refusal: { readonly message: string; readonly code: string | undefined },
  cause: unknown,
): PgTaskError {
  const { message, code } = refusal;
  // This message comes from a pooler. PostgreSQL itself would name the unknown parameter.
  if (/unsupported (?:options )?startup parameter/i.test(message)) {
    return pooledError(target, `was refused with "${message}"`, cause);
  }
  const reserved = code?.startsWith("28") === true ? whyReserved(target.user) : null;
  const password = code === "28P01" ? `give the role's password, or set it by ${alterRole(target)}` : null;
  const source = password === null || target.password === undefined ? null : `${sourceOfPassword(target)}: `;
  const hint = reserved ?? password ?? remedyOf(refusal, target);
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server refused the connection ${describeTarget(target)}: ${message} (SQLSTATE ${code})${hint === null ? "" : `: ${source ?? ""}${hint}`}`,
    { cause, sqlState: code, remedy: hint ?? undefined },
  );
}

const sourceOfPassword = ({ passwordFile }: ConnectionTarget): string =>
  passwordFile === undefined
    ? "the password is from the connection's settings or PGPASSWORD, so no password file was read"
    : `the password is from ${passwordFile}`;

/** Returns what to do about a refusal whose reason is certain. The server may translate its messages. */
function remedyOf(
  { message, code }: { readonly message: string; readonly code: string | undefined },
  { user, database }: ConnectionTarget,
): string | null {
  if (code === "3D000") return `create the database ${identifier(database)}, or correct its name`;
  if (code === "28000" && message.includes("is not permitted to log in")) return `ALTER ROLE ${identifier(user)} LOGIN`;
  return null;
}

/** @param isControl whether this is the control connection, to which the password of an entry does not apply */
export function missingPasswordError(target: ConnectionTarget, cause: unknown, isControl = false): PgTaskError {
  const where = isControl ? "the URL" : "the entry or the URL";
  const { passwordFile } = target;
  const problem = passwordFile === undefined ? null : passwordFileProblem(passwordFile);
  const file = passwordFile === undefined ? "" : ` (${whyNoPassword(passwordFile)})`;
  const give =
    problem === null
      ? `give one in ${where}, in PGPASSWORD or in a password file${file}`
      : `${problem}; or give one in ${where}, or in PGPASSWORD`;
  const entry = isControl ? "; the password of an entry does not count for the control connection" : "";
  const remedy = `${give}${entry}; set the password of a role without one by ${alterRole(target)}`;
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server asks for a password, and none was given for ${describeTarget(target)}: ${remedy}`,
    { cause, remedy },
  );
}

const whyNoPassword = (file: string): string =>
  existsSync(file) ? `no matching line was read from ${file}` : `there is no ${file}`;

export function isPasswordRefused(error: unknown): boolean {
  if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED") return false;
  return error.sqlState === undefined || error.sqlState === "28P01";
}

export function isUnknownRole(error: PgTaskError): boolean {
  const { sqlState, cause } = error;
  // Other reasons have the same SQLSTATE, and the server may translate its messages.
  return sqlState === "28000" && cause instanceof LoginRefused && cause.error.routine === "InitializeSessionUserId";
}

export function readOnlyError(target: ConnectionTarget, why: "standby" | "session"): PgTaskError {
  const found =
    why === "standby" ? "the server is a standby" : "its sessions are read-only (default_transaction_read_only is on)";
  return new PgTaskError("CONNECTION_READ_ONLY", `no writable server at ${describeTarget(target)}: ${found}`);
}

export function unreachableError(target: ConnectionTarget, cause: unknown): PgTaskError {
  const at = target.host.startsWith("/")
    ? `${target.host}/.s.PGSQL.${target.port}`
    : `${target.host}, port ${target.port}`;
  return new PgTaskError(
    "CONNECTION_FAILED",
    `no connection to the server at ${at} (${describeTarget(target)}): ${reason(cause)}`,
    { cause },
  );
}

function reason(error: unknown): string {
  const parts = partsOfError(error);
  if (parts !== null) return [...new Set(parts.map(reason))].join("; ");
  if (!isError(error)) return String(error);
  return isError(error.cause) && untrustedCodes.has(systemErrorCode(error.cause))
    ? `the server's certificate is not trusted: ${error.cause.message} (sslrootcert names the file with those that are)`
    : explainSystemError(error, {
        ECONNREFUSED: "nothing listens there: is the server running?",
        ENOENT: "there is no such socket: is the server running on this machine?",
      });
}

const untrustedCodes: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

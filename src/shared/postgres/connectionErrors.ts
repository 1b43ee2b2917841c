import type { ConnectionTarget } from "../config/types.js";
import { describeTarget } from "./target/describeTarget.js";
import { PgTaskError } from "../errors.js";
import { identifier } from "./quoting.js";

/** Something stands between it and us. */
export function pooled(target: ConnectionTarget, what: string, cause?: unknown): PgTaskError {
  return new PgTaskError(
    "CONNECTION_POOLED",
    `expected the server itself at ${describeTarget(target)}, but a pooler such as PgBouncer is there ` +
      `(the connection ${what}): give the server's own address to pg-task; who inserts tasks may go ` +
      "on using the pooler",
    { cause },
  );
}

/** A role that is there keeps the password that it has, whatever the configuration says. */
const alterRole = ({ user }: ConnectionTarget): string =>
  `ALTER ROLE ${identifier(user)} PASSWORD '…'`;

/** The server's own words for not letting us in. */
export function rejected(
  target: ConnectionTarget,
  words: { readonly message: string; readonly code: string | undefined },
  cause: unknown,
): PgTaskError {
  const { message, code } = words;
  // PostgreSQL itself has no such words: it names a parameter that it does not know.
  if (/unsupported (?:options )?startup parameter/i.test(message)) {
    return pooled(target, `was refused with "${message}"`, cause);
  }
  const hint =
    code === "28P01"
      ? `: give the password that the role has there, or set it by ${alterRole(target)}`
      : "";
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server refused the connection ${describeTarget(target)}: ${message} (SQLSTATE ${code})${hint}`,
    { cause, ...(code === undefined ? {} : { sqlState: code }) },
  );
}

export function withoutPassword(target: ConnectionTarget, cause: unknown): PgTaskError {
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server asks for a password, and none was given for ${describeTarget(target)}: give one in the entry or the url, in PGPASSWORD or in a password file; a role that has none on the server gets one by ${alterRole(target)}`,
    { cause },
  );
}

/** Whatever else a connection came to nothing with. */
export function notReached(target: ConnectionTarget, cause: unknown): PgTaskError {
  const at = target.host.startsWith("/")
    ? `${target.host}/.s.PGSQL.${target.port}`
    : `${target.host}, port ${target.port}`;
  return new PgTaskError(
    "CONNECTION_FAILED",
    `no connection to the server at ${at} (${describeTarget(target)}): ${reason(cause)}`,
    { cause },
  );
}

/** Node reports a host with several addresses as an AggregateError with an empty message. */
function reason(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reason).join("; ");
  if (!(error instanceof Error)) return String(error);
  const untrusted = "code" in error && untrustedCodes.has(String(error.code));
  return untrusted
    ? `the server's certificate is not trusted: ${error.message} (sslrootcert names the file with those that are)`
    : error.message;
}

/** What TLS says of a certificate that nobody known has signed. */
const untrustedCodes: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

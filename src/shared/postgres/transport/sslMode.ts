import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { ConnectionStringError } from "../errors.js";

/** The values that libpq allows for `sslmode`. */
export const sslModes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
export type SslMode = (typeof sslModes)[number];

/** Which encryption the client asks the server for before the startup packet. */
export type Encryption = "none" | "ifOffered" | "required";

/** For each `sslmode`, the ways to connect, in order. If the server refuses one way, the next can be tried. */
export const encryptionAttempts: Readonly<Record<SslMode, readonly Encryption[]>> = {
  disable: ["none"],
  allow: ["none", "required"],
  prefer: ["ifOffered", "none"],
  require: ["required"],
  "verify-ca": ["required"],
  "verify-full": ["required"],
};

/**
 * Chooses the effective `sslmode`. If none is given, it is `verify-full` if `sslrootcert` is "system", and otherwise
 * `prefer`.
 *
 * @throws ConnectionStringError for a mode that would ignore the system's root certificates
 */
export function chooseSslMode(given: SslMode | undefined, sslrootcert?: string): SslMode {
  if (sslrootcert !== "system") return given ?? "prefer";
  if (given === undefined || given === "verify-full") return "verify-full";
  throw new ConnectionStringError(
    `weak sslmode "${given}" may not be used with sslrootcert=system (use "verify-full")`,
  );
}

/**
 * Returns the mode that takes effect, which depends on whether there is a file of root certificates. As in libpq, such
 * a file makes `require` also verify the certificate's issuer.
 */
export function withRootFile(mode: SslMode, hasRootFile: boolean): SslMode {
  return mode === "require" && hasRootFile ? "verify-ca" : mode;
}

/** Returns the path of one of libpq's files in `~/.postgresql`. */
export function userFilePath(env: NodeJS.ProcessEnv, name: string): string {
  return join(env["HOME"] || homedir(), ".postgresql", name);
}

/** Returns the path of one of libpq's files in `~/.postgresql` if that file exists; otherwise undefined. */
export function findUserFile(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const path = userFilePath(env, name);
  return existsSync(path) ? path : undefined;
}

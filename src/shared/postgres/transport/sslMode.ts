import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { ConnectionStringError } from "../errors.js";

export const sslModes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
export type SslMode = (typeof sslModes)[number];

export type Encryption = "none" | "ifOffered" | "required";

/** The ways to connect, in order. If the server refuses one way, the next can be tried. */
export const encryptionAttempts: Readonly<Record<SslMode, readonly Encryption[]>> = {
  disable: ["none"],
  allow: ["none", "required"],
  prefer: ["ifOffered", "none"],
  require: ["required"],
  "verify-ca": ["required"],
  "verify-full": ["required"],
};

/** @throws ConnectionStringError for a mode that would ignore the system's root certificates */
export function chooseSslMode(given: SslMode | undefined, sslrootcert?: string): SslMode {
  if (sslrootcert !== "system") return given ?? "prefer";
  if (given === undefined || given === "verify-full") return "verify-full";
  throw new ConnectionStringError(
    `weak sslmode "${given}" may not be used with sslrootcert=system (use "verify-full")`,
  );
}

export function userFilePath(env: NodeJS.ProcessEnv, name: string): string {
  return join(env["HOME"] || homedir(), ".postgresql", name);
}

export function findUserFile(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const path = userFilePath(env, name);
  return existsSync(path) ? path : undefined;
}

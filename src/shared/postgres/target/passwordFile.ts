import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { systemErrorCode } from "../../errors.js";

/** The values that select a line of a password file. */
export interface PasswordKey {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
}

/** Returns the path of the password file: PGPASSFILE, or `~/.pgpass` if that variable is not set. */
export function passwordFilePath(env: NodeJS.ProcessEnv): string {
  if (env["PGPASSFILE"]) return env["PGPASSFILE"];
  if (process.platform !== "win32") return join(env["HOME"] || homedir(), ".pgpass");
  return join(env["APPDATA"] ?? homedir(), "postgresql", "pgpass.conf");
}

/**
 * Reads a password file. As in libpq, a file that other users can read is not used, and a warning is given.
 *
 * @returns the text; null if there is no file or the file is not used
 */
export async function readPasswordFile(path: string, warn: (message: string) => void): Promise<string | null> {
  const problem = passwordFileProblem(path);
  if (problem !== null) {
    warn(problem);
    return null;
  }
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (!isMissing(error)) warn(notUsed(path, systemErrorCode(error) || String(error)));
    return null;
  }
}

/** Returns why a password file must not be used, or null if it may be used or does not exist. */
export function passwordFileProblem(path: string): string | null {
  try {
    const stats = statSync(path);
    if (!stats.isFile()) return notUsed(path, "it is not a plain file");
    if (process.platform === "win32" || (stats.mode & 0o077) === 0) return null;
    return notUsed(path, "its group or others can read it; permissions should be u=rw (0600) or less");
  } catch (error) {
    return isMissing(error) ? null : notUsed(path, systemErrorCode(error) || String(error));
  }
}

const notUsed = (path: string, why: string): string => `password file ${path} is not used: ${why}`;

const isMissing = (error: unknown): boolean => ["ENOENT", "ENOTDIR"].includes(systemErrorCode(error));

/**
 * Returns the password of the first matching line. A line has the form `host:port:database:user:password`. A field `*`
 * matches anything, and a backslash escapes a colon or a backslash.
 */
export function findPassword(text: string, key: PasswordKey): string | null {
  // As in libpq, a line for "localhost" also matches the default socket.
  const host = key.host === defaultSocketDirectory ? "localhost" : key.host;
  const wanted = [host, String(key.port), key.database, key.user];
  for (const line of text.split(/\r?\n/)) {
    const password = line.startsWith("#") ? null : matchLine(line, wanted);
    if (password !== null && password !== "") return password;
  }
  return null;
}

/** The directory in which libpq looks for the server's socket if no host is given. */
export const defaultSocketDirectory = process.platform === "linux" ? "/var/run/postgresql" : "/tmp";

function matchLine(line: string, wanted: readonly string[]): string | null {
  let rest = line;
  for (const field of wanted) {
    const [whole, text = ""] = /^((?:\\.|[^:\\])*):/s.exec(rest) ?? [];
    if (whole === undefined || (text !== "*" && unescape(text) !== field)) return null;
    rest = rest.slice(whole.length);
  }
  return unescape(rest);
}

function unescape(text: string): string {
  return text.replace(/\\(.)/gs, "$1");
}

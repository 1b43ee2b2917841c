import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { systemErrorCode } from "../../errors.js";

export interface PasswordKey {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
}

export function passwordFilePath(env: NodeJS.ProcessEnv): string {
  if (env["PGPASSFILE"]) return env["PGPASSFILE"];
  if (process.platform !== "win32") return join(env["HOME"] || homedir(), ".pgpass");
  return join(env["APPDATA"] ?? homedir(), "postgresql", "pgpass.conf");
}

/** Returns null if there is no file, or it is not used because others can read it, about which a warning is given. */
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

/** Returns why a password file must not be used; null if it may, or does not exist. */
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

/** Returns the password of the first matching line, `host:port:database:user:password`, with `*` and backslashes. */
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

import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { errorCode } from "../../config/errorCode.js";

/** What a line of a password file is looked up by. */
export interface PasswordKey {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
}

/** Where the password file is: PGPASSFILE, else the home folder's `.pgpass`. */
export function passwordFilePath(env: NodeJS.ProcessEnv): string {
  if (env["PGPASSFILE"]) return env["PGPASSFILE"];
  if (process.platform !== "win32") return join(env["HOME"] || homedir(), ".pgpass");
  return join(env["APPDATA"] ?? homedir(), "postgresql", "pgpass.conf");
}

/**
 * The text of a password file; null when there is none, or when others may read it: then it does
 * not count, as with libpq, and `warn` gets told.
 */
export async function readPasswordFile(
  path: string,
  warn: (message: string) => void,
): Promise<string | null> {
  try {
    const found = await stat(path);
    if (!found.isFile()) {
      warn(`password file ${path} is not used: it is not a plain file`);
      return null;
    }
    if (process.platform !== "win32" && (found.mode & 0o077) !== 0) {
      warn(
        `password file ${path} is not used: its group or others may read it; permissions should be u=rw (0600) or less`,
      );
      return null;
    }
    return await readFile(path, "utf8");
  } catch (error) {
    const code = errorCode(error) || String(error);
    if (code !== "ENOENT" && code !== "ENOTDIR") {
      warn(`password file ${path} is not used: ${code}`);
    }
    return null;
  }
}

/**
 * The password of the first line `host:port:database:user:password` that fits. A field `*` fits
 * anything; a backslash takes the meaning from a colon or backslash behind it.
 */
export function findPassword(text: string, key: PasswordKey): string | null {
  // libpq calls the default socket by this name.
  const host = key.host === defaultSocketFolder ? "localhost" : key.host;
  const wanted = [host, String(key.port), key.database, key.user];
  for (const line of text.split(/\r?\n/)) {
    const password = line.startsWith("#") ? null : matchLine(line, wanted);
    if (password !== null && password !== "") return password;
  }
  return null;
}

/** Where libpq looks for the server's socket when no host is named. */
export const defaultSocketFolder = process.platform === "linux" ? "/var/run/postgresql" : "/tmp";

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

import { execFile } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { errorMessage, PgTaskError } from "../shared/errors.js";

/** The account of the server's processes, if it is not the current user's. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** Superusers can run programs under the account, and `postgres` may own a more valuable server. */
const accountNames = ["nobody", "postgres", "_postgres"];

/**
 * PostgreSQL refuses to run as root. For root, the account is the owner of existing data, or else an unprivileged one.
 *
 * @throws PgTaskError EMBEDDED_UNAVAILABLE if there is none
 */
export async function serverAccount(
  dataOwner: { readonly uid: number; readonly gid: number } | null,
): Promise<Account | null> {
  if (process.getuid?.() !== 0) return null;
  if (dataOwner !== null && dataOwner.uid !== 0) return { name: await nameOf(dataOwner.uid), ...dataOwner };
  for (const name of accountNames) {
    const account = await lookUp(name);
    if (account !== null) return account;
  }
  throw new PgTaskError(
    "EMBEDDED_UNAVAILABLE",
    `PostgreSQL does not run as root, and none of the accounts ${accountNames.join(", ")} exists: start as another user, or give a url`,
  );
}

async function nameOf(uid: number): Promise<string> {
  const { code, output } = await run("id", ["-un", String(uid)], null);
  return code === 0 ? output.trim() : `user id ${uid}`;
}

async function lookUp(name: string): Promise<Account | null> {
  const [uid, gid] = await Promise.all([numberOf("-u", name), numberOf("-g", name)]);
  return uid === null || gid === null ? null : { name, uid, gid };
}

async function numberOf(flag: "-u" | "-g", name: string): Promise<number | null> {
  const { code, output } = await run("id", [flag, name], null);
  const number = Number(output.trim());
  // Node accepts ids only as signed 32-bit integers, and the id of `nobody` on macOS is larger.
  const usable = code === 0 && Number.isInteger(number) && number > 0 && number < 2 ** 31;
  return usable ? number : null;
}

export async function canRead(paths: readonly string[], account: Account | null): Promise<boolean> {
  if (account === null) return await allAccessible(paths);
  const script = 'for path; do test -r "$path" || exit 1; test ! -d "$path" || test -x "$path" || exit 1; done';
  return (await run("/bin/sh", ["-c", script, "sh", ...paths], account)).code === 0;
}

async function allAccessible(paths: readonly string[]): Promise<boolean> {
  try {
    await Promise.all(paths.map((path) => access(path, constants.R_OK)));
    return true;
  } catch {
    return false;
  }
}

/** Never throws: `code` is -1 if the command could not be started or was ended by a signal; `output` then says why. */
export async function run(
  file: string,
  args: readonly string[],
  account: Account | null,
): Promise<{ readonly code: number; readonly output: string }> {
  const options = { cwd: "/", env: serverEnvironment(), ...identity(account) };
  return await new Promise((resolve) => {
    try {
      execFile(file, args, options, (error, stdout, stderr) => {
        if (error === null) return resolve({ code: 0, output: stdout });
        const code = typeof error.code === "number" ? error.code : -1;
        resolve({ code, output: stderr.trim() === "" ? error.message : stderr.trim() });
      });
    } catch (error) {
      // The error is thrown synchronously if the current user cannot switch to the account.
      resolve({ code: -1, output: errorMessage(error) });
    }
  });
}

export function identity(account: Account | null): { uid?: number; gid?: number } {
  return account === null ? {} : { uid: account.uid, gid: account.gid };
}

/** PGPORT, PGOPTIONS and the like would affect the server's processes, and secrets must not be passed on. */
export function serverEnvironment(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const kept = ["PATH", "TZ", "SystemRoot", "TEMP", "TMP"];
  const environment: NodeJS.ProcessEnv = { LC_ALL: "C", ...more };
  for (const name of kept) {
    const value = process.env[name];
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}

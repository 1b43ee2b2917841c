import { execFile } from "node:child_process";
import { errorMessage } from "./systemError.js";

/** Whom the server's processes run as when that is not ourselves. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

export interface CommandResult {
  /** Exit code, -1 when it could not be started or was ended by a signal. */
  readonly code: number;
  /** What it wrote, or why it could not be started. */
  readonly output: string;
}

/** Runs a short command to its end; never throws. */
export async function run(
  file: string,
  args: readonly string[],
  account: Account | null,
): Promise<CommandResult> {
  const options = { cwd: "/", env: serverEnvironment(), ...identity(account) };
  return await new Promise((resolve) => {
    try {
      execFile(file, args, options, (error, stdout, stderr) => {
        if (error === null) return resolve({ code: 0, output: stdout });
        const code = typeof error.code === "number" ? error.code : -1;
        resolve({ code, output: stderr.trim() === "" ? error.message : stderr.trim() });
      });
    } catch (error) {
      // Thrown at once when we may not change to the account.
      resolve({ code: -1, output: errorMessage(error) });
    }
  });
}

export function identity(account: Account | null): { uid?: number; gid?: number } {
  return account === null ? {} : { uid: account.uid, gid: account.gid };
}

/**
 * What server processes get of our environment: PGPORT, PGOPTIONS and the like would change them,
 * and secrets are none of their business.
 */
export function serverEnvironment(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const kept = ["PATH", "TZ", "SystemRoot", "TEMP", "TMP"];
  const environment: NodeJS.ProcessEnv = { LC_ALL: "C", ...more };
  for (const name of kept) {
    const value = process.env[name];
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}

import { execFile } from "node:child_process";
import { errorMessage } from "../shared/errors.js";

/** The account under which the server's processes run, if it is not the account of the current user. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

export interface CommandResult {
  /** Exit code, or -1 if the command could not be started or was ended by a signal. */
  readonly code: number;
  /** The command's output, or the reason why the command could not be started. */
  readonly output: string;
}

/** Runs a short command to completion. Never throws. */
export async function run(file: string, args: readonly string[], account: Account | null): Promise<CommandResult> {
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

/**
 * Returns the environment for server processes. PGPORT, PGOPTIONS and other variables are left out because they would
 * affect the processes. Secrets are left out because they must not be passed on.
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

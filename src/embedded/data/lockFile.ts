import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { systemErrorCode } from "../../shared/errors.js";

/** postmaster.pid, the lock file that a server keeps in its data directory. */
export interface LockFile {
  /** Null if a server is just starting or has crashed. */
  readonly pid: number | null;
  readonly port: number | null;
  /** `starting`, `ready`, `stopping` or `standby`. Empty at first. */
  readonly status: string;
}

export async function readLockFile(dataDirectory: string): Promise<LockFile | null> {
  const text = await readIfExists(lockFilePath(dataDirectory));
  if (text === null) return null;
  const [pid, , , port, , , , status] = text.split("\n");
  return {
    pid: positive(pid),
    port: positive(port),
    status: (status ?? "").trim(),
  };
}

export function lockFilePath(dataDirectory: string): string {
  return join(dataDirectory, "postmaster.pid");
}

/** Records which pg-task process started the server. */
export const holderSetting = "embedded.holder";

/** Returns the pg-task process that started the last server on the data; null if none did. */
export async function readHolder(dataDirectory: string): Promise<number | null> {
  const text = await readIfExists(join(dataDirectory, "postmaster.opts"));
  return positive(text?.split(`${holderSetting}=`)[1]?.match(/^\d+/)?.[0]);
}

function positive(text: string | undefined): number | null {
  const number = Number(text);
  return Number.isInteger(number) && number > 0 ? number : null;
}

async function readIfExists(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return null;
    throw error;
  }
}

/** Zombies do not count. */
export async function isAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (systemErrorCode(error) === "ESRCH") return false;
  }
  if (process.platform !== "linux") return true;
  try {
    // In this file, the process name precedes the state and may contain spaces and parentheses.
    const state = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/^.*\) /s, "")[0];
    return state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../systemError.js";

/** What a server writes about itself into postmaster.pid. */
export interface LockFile {
  /** Null when the file holds no process id: a server just being started, or what a crash left. */
  readonly pid: number | null;
  readonly port: number | null;
  /** `starting`, `ready`, `stopping`, `standby`; empty until the server has got that far. */
  readonly status: string;
}

/** Null when there is no such file. */
export async function readLockFile(dataDirectory: string): Promise<LockFile | null> {
  const text = await readIfThere(lockFilePath(dataDirectory));
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

/** The setting by which a server knows, and tells, who started it. */
export const holderSetting = "embedded.holder";

/** Who started the last server on the data, null when that was somebody else than us. */
export async function readHolder(dataDirectory: string): Promise<number | null> {
  const text = await readIfThere(join(dataDirectory, "postmaster.opts"));
  return positive(text?.split(`${holderSetting}=`)[1]?.match(/^\d+/)?.[0]);
}

function positive(text: string | undefined): number | null {
  const number = Number(text);
  return Number.isInteger(number) && number > 0 ? number : null;
}

async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}

import { readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { systemErrorCode, PgTaskError } from "../../shared/errors.js";
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../../shared/log.js";
import { run } from "../serverAccount.js";
import { explainSystemError } from "../../shared/systemErrors.js";
import { unwritable } from "./dataDirectory.js";

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

function lockFilePath(dataDirectory: string): string {
  return join(dataDirectory, "postmaster.pid");
}

/** Records which pg-task process started the server. */
export const holderSetting = "embedded.holder";

/** Returns the pg-task process that started the last server on the data; null if none did. */
async function readHolder(dataDirectory: string): Promise<number | null> {
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

/** How long to wait for another server's shutdown, in ms. It writes all dirty buffers, which can take long. */
const shutdownLimitMs = 60_000;
/**
 * How long a lock file can stay empty before it is removed, in ms. A server needs only microseconds to write its pid.
 */
const emptyLimitMs = 2_000;
const pollMs = 25;

/**
 * Waits until no server uses the data directory, and shuts one down whose pg-task is gone. Returns the process id in a
 * stale lock file, which the next server has to ignore.
 *
 * @throws PgTaskError EMBEDDED_DATA_IN_USE if a server is not shutting down, or takes too long
 */
export async function awaitRelease(dataDirectory: string, log: Log): Promise<number | null> {
  const start = performance.now();
  let isLogged = false;
  let isSignalled = false;
  for (;;) {
    const found = await readLock(dataDirectory);
    if (found === null) return null;
    const waitedMs = performance.now() - start;
    if (found.pid === null) {
      if (waitedMs > emptyLimitMs) await rm(lockFilePath(dataDirectory), { force: true });
    } else {
      if (!(await isServer(found.pid, dataDirectory))) return found.pid;
      const { status } = found;
      // A server without a status is still starting, and which pg-task started it is not recorded yet.
      const holder = status === "" ? null : await readHolder(dataDirectory);
      const isAbandoned = holder !== null && !(await isAlive(holder));
      const isTransient = status === "" || status === "stopping" || isAbandoned;
      if (!isTransient || waitedMs > shutdownLimitMs) throw inUse(dataDirectory, found, holder);
      if (!isLogged) log.info(`waiting for the embedded server ${found.pid} to start or shut down`);
      isLogged = true;
      if (isAbandoned && status !== "stopping" && !isSignalled) {
        isSignalled = true;
        process.kill(found.pid, "SIGINT");
      }
    }
    await sleep(pollMs);
  }
}

async function readLock(dataDirectory: string): Promise<LockFile | null> {
  try {
    return await readLockFile(dataDirectory);
  } catch (error) {
    throw unwritable(dataDirectory, `its file postmaster.pid cannot be read: ${explainSystemError(error)}`, error);
  }
}

function inUse(dataDirectory: string, { pid, port }: LockFile, holder: number | null): PgTaskError {
  const server = port === null ? `process ${pid}` : `process ${pid}, port ${port}`;
  const who =
    holder === null
      ? `a PostgreSQL server (${server}) runs on it`
      : `the pg-task of process ${holder} runs a server (${server}) on it`;
  return new PgTaskError(
    "EMBEDDED_DATA_IN_USE",
    `the data folder ${dataDirectory} is in use: ${who}; stop that server, or give another data folder`,
  );
}

/** Process ids are reused, so the server that wrote the lock file must also work in this directory. */
async function isServer(pid: number, dataDirectory: string): Promise<boolean> {
  if (!(await isAlive(pid))) return false;
  if (process.platform === "win32") return true;
  if (process.platform !== "linux") {
    return /postgres/.test((await run("ps", ["-o", "command=", "-p", String(pid)], null)).output);
  }
  try {
    const [name, theirs, ours] = await Promise.all([
      readFile(`/proc/${pid}/comm`, "utf8"),
      stat(`/proc/${pid}/cwd`),
      stat(dataDirectory),
    ]);
    return name.trim() === "postgres" && theirs.dev === ours.dev && theirs.ino === ours.ino;
  } catch {
    // The process has ended in the meantime, or it belongs to another user and cannot use our data.
    return false;
  }
}

import { readFile, rm, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { run } from "../runCommand.js";
import { lockFilePath, readHolder, readLockFile, type LockFile } from "./lockFile.js";
import { isAlive } from "../isAlive.js";

/** A fast shutdown writes out all that is dirty. */
const shutdownLimitMs = 60_000;
/** From making the file to writing a process id into it takes a server microseconds. */
const emptyLimitMs = 2_000;
const lookEveryMs = 25;

/**
 * Waits while a server on the data is shutting down, and sees to it that one whose pg-task is gone
 * does. Returns the process id in a stale lock file, for the next server to disregard.
 *
 * @throws PgTaskError EMBEDDED_DATA_IN_USE when a server is there to stay.
 */
export async function awaitRelease(dataDirectory: string, log: Log): Promise<number | null> {
  const start = performance.now();
  let told = false;
  for (;;) {
    const found = await readLockFile(dataDirectory);
    if (found === null) return null;
    const waitedMs = performance.now() - start;
    if (found.pid === null) {
      if (waitedMs > emptyLimitMs) await rm(lockFilePath(dataDirectory), { force: true });
    } else {
      if (!(await isServer(found.pid, dataDirectory))) return found.pid;
      const holder = found.status === "" ? null : await readHolder(dataDirectory);
      const isLeaving = await leaves(found, holder);
      if (!isLeaving || waitedMs > shutdownLimitMs) throw inUse(dataDirectory, found, holder);
      if (!told) log.info(`waiting for the embedded server ${found.pid} to shut down`);
      if (!told && found.status !== "stopping") process.kill(found.pid, "SIGINT");
      told = true;
    }
    await sleep(lookEveryMs);
  }
}

/** A server without a status is only just starting: who started it is not written yet. */
async function leaves({ status }: LockFile, holder: number | null): Promise<boolean> {
  if (status === "" || status === "stopping") return true;
  return holder !== null && !(await isAlive(holder));
}

export function inUse(
  dataDirectory: string,
  { pid, port }: LockFile,
  holder: number | null,
): PgTaskError {
  const server = port === null ? `process ${pid}` : `process ${pid}, port ${port}`;
  const who =
    holder === null
      ? `a PostgreSQL server (${server}) runs on it`
      : `the pg-task of process ${holder} runs a server (${server}) on it`;
  return new PgTaskError(
    "EMBEDDED_DATA_IN_USE",
    `the data folder ${dataDirectory} is in use, ${who}: stop that one, or give another data folder`,
  );
}

/** Process ids are used again: only a server that works in this folder is the one that wrote it. */
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
    // Gone by now, or another user's, and the data is ours.
    return false;
  }
}

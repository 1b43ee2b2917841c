import { chown, mkdir, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { explainSystemError } from "../../shared/systemErrors.js";
import { PgTaskError, systemErrorCode, errorMessage } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { Binaries } from "../binaries/usableBinaries.js";
import type { Account } from "../serverAccount.js";
import { pathFor, unwritable } from "./dataDirectory.js";
import { describeExit, startGuarded } from "../guardedProcess.js";
import { ServerLog } from "../serverLog.js";
import { removeUnfinished, unfinishedPath } from "./unfinishedPath.js";

/** `trust` applies to connections from loopback addresses only. */
function initdbOptions(major: number): string[] {
  return [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    // PostgreSQL's built-in C.UTF-8 sorts text and changes case identically on every host.
    ...(major >= 17 ? ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] : []),
    ...(major >= 14 ? ["--no-instructions"] : []),
  ];
}

/**
 * Creates the data folder under another name, and renames it when it is complete. If a concurrent start was faster, its
 * folder stays.
 *
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE, EMBEDDED_FAILED
 */
export async function runInitdbInto(
  path: string,
  options: {
    readonly binaries: Binaries;
    readonly account: Account | null;
    readonly durable: boolean;
    readonly log: Log;
  },
): Promise<void> {
  const folder = await makeFolder(path, options.account);
  await removeLeftovers(path, options.log);
  try {
    await runInitdb(folder, options);
    await move(folder, path);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function makeFolder(path: string, account: Account | null): Promise<string> {
  const folder = unfinishedPath(path);
  try {
    await mkdir(dirname(path), { recursive: true });
    await mkdir(folder, { mode: 0o700 });
    if (account !== null) await chown(folder, account.uid, account.gid);
  } catch (error) {
    throw unwritable(path, explainSystemError(error), error);
  }
  return folder;
}

/** Leftovers of earlier starts only take space, so failing to remove them is no error. */
async function removeLeftovers(path: string, log: Log): Promise<void> {
  try {
    await removeUnfinished(path);
  } catch (error) {
    log.warn(`cannot remove leftovers of an earlier start next to ${path}: ${errorMessage(error)}`);
  }
}

async function runInitdb(
  folder: string,
  { binaries, account, durable, log }: Parameters<typeof runInitdbInto>[1],
): Promise<void> {
  const serverLog = new ServerLog(log);
  const initdb = await startGuarded(
    binaries.initdb,
    [...initdbOptions(Number(binaries.major)), ...(durable ? [] : ["--no-sync"]), "-D", await pathFor(account, folder)],
    { directory: folder, account, onLine: serverLog.take },
  );
  const exit = await initdb.ended;
  if (exit.code === 0) return;
  throw new PgTaskError(
    "EMBEDDED_FAILED",
    `initdb ended with ${describeExit(exit)} instead of creating a data folder: ${serverLog.lastLines()}`,
  );
}

async function move(folder: string, path: string): Promise<void> {
  try {
    await rename(folder, path);
  } catch (error) {
    const code = systemErrorCode(error);
    if (["ENOTEMPTY", "EEXIST"].includes(code)) return;
    const why = ["EBUSY", "EXDEV"].includes(code)
      ? "it is a mount point: give a folder inside it"
      : explainSystemError(error);
    throw unwritable(path, why, error);
  }
}

import { chown, mkdir, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { Binaries } from "../binaries/usableBinaries.js";
import type { Account } from "../runCommand.js";
import { nameFor, unwritable } from "./dataDirectory.js";
import { describeEnding, startGuarded } from "../guardedProcess.js";
import { createServerLog } from "../serverLog.js";
import { removeUnfinished, unfinishedPath } from "./unfinishedPath.js";
import { errorCode, errorMessage } from "../systemError.js";

/** `trust` is written for loopback addresses only. */
function initdbOptions(major: number): string[] {
  return [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    // PostgreSQL's own C.UTF-8 sorts and folds alike on every host.
    ...(major >= 17 ? ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] : []),
    ...(major >= 14 ? ["--no-instructions"] : []),
  ];
}

/**
 * Makes the data folder `path`, beside its place, and moves it there when it is whole. When another
 * start was quicker, its folder stays and ours goes.
 *
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE, EMBEDDED_FAILED
 */
export async function initialise(
  path: string,
  options: {
    readonly binaries: Binaries;
    readonly account: Account | null;
    /** Whether it must survive a crash of the machine. */
    readonly durable: boolean;
    readonly log: Log;
  },
): Promise<void> {
  const folder = await makeFolder(path, options.account);
  await tidyUp(path, options.log);
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
    throw unwritable(path, errorMessage(error), error);
  }
  return folder;
}

/** What others left takes space, but stands in nobody's way. */
async function tidyUp(path: string, log: Log): Promise<void> {
  try {
    await removeUnfinished(path);
  } catch (error) {
    log.warn(`what an earlier start left beside ${path} cannot be removed: ${errorMessage(error)}`);
  }
}

async function runInitdb(
  folder: string,
  { binaries, account, durable, log }: Parameters<typeof initialise>[1],
): Promise<void> {
  const words = createServerLog(log);
  const initdb = await startGuarded(
    binaries.initdb,
    [
      ...initdbOptions(Number(binaries.major)),
      ...(durable ? [] : ["--no-sync"]),
      "-D",
      await nameFor(account, folder),
    ],
    { directory: folder, account, onLine: words.take },
  );
  const ending = await initdb.ended;
  if (ending.code === 0) return;
  throw new PgTaskError(
    "EMBEDDED_FAILED",
    `initdb ended with ${describeEnding(ending)} instead of making a data folder: ${words.lastWords()}`,
  );
}

async function move(folder: string, path: string): Promise<void> {
  try {
    await rename(folder, path);
  } catch (error) {
    const code = errorCode(error);
    if (["ENOTEMPTY", "EEXIST"].includes(code)) return;
    const why = ["EBUSY", "EXDEV"].includes(code)
      ? "it is a mount point: give a folder inside it"
      : errorMessage(error);
    throw unwritable(path, why, error);
  }
}

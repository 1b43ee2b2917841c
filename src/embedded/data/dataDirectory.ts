import { access, constants, readdir, readFile, realpath, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { PgTaskError } from "../../shared/errors.js";
import { canRead } from "../serverAccount.js";
import type { Account } from "../runCommand.js";
import { errorCode, errorMessage } from "../systemError.js";

export interface DataDirectory {
  /** Absolute, without symbolic links where it exists. */
  readonly path: string;
  /** Null when there is no data yet: the folder is empty, or not there. */
  readonly cluster: {
    readonly major: string;
    readonly owner: { readonly uid: number; readonly gid: number };
  } | null;
}

/**
 * Looks at a data folder without changing anything.
 *
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE when it is no folder, or cannot be read;
 * EMBEDDED_DATA_FOREIGN when it holds something else.
 */
export async function inspect(given: string): Promise<DataDirectory> {
  const path = await realPath(resolve(given));
  const names = await list(path);
  if (names.length === 0) return { path, cluster: null };
  if (!names.includes("PG_VERSION")) {
    throw new PgTaskError(
      "EMBEDDED_DATA_FOREIGN",
      `${path} is no PostgreSQL data folder, and not empty (it holds ${names.toSorted()[0]}): give another data folder`,
    );
  }
  const { uid, gid } = await stat(path);
  const major = (await readFile(join(path, "PG_VERSION"), "utf8")).trim();
  return { path, cluster: { major, owner: { uid, gid } } };
}

/** @throws PgTaskError EMBEDDED_DATA_VERSION */
export function requireMajor({ path, cluster }: DataDirectory, major: string): void {
  if (cluster === null || cluster.major === major) return;
  throw new PgTaskError(
    "EMBEDDED_DATA_VERSION",
    `the data folder ${path} is of PostgreSQL ${cluster.major}, the embedded server is PostgreSQL ${major}: give another data folder, or pg_upgrade this one`,
  );
}

export function unwritable(path: string, why: string, cause?: unknown): PgTaskError {
  return new PgTaskError(
    "EMBEDDED_DATA_UNWRITABLE",
    `the data folder ${path} cannot be used: ${why}; give a folder that can be written`,
    { cause },
  );
}

/**
 * The name by which the server's account finds the folder when it starts in it. Folders above may be
 * closed to it, as /root is; on Linux it then goes by its own working directory.
 *
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE where there is no such way.
 */
export async function nameFor(account: Account | null, path: string): Promise<string> {
  if (account === null || (await canRead([path], account))) return path;
  if (process.platform === "linux") return "/proc/self/cwd";
  throw unwritable(
    path,
    `PostgreSQL does not run as root, and ${account.name} may not enter the folders above it`,
  );
}

async function realPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return path;
    throw unwritable(path, errorMessage(error), error);
  }
}

async function list(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw unwritable(path, errorMessage(error), error);
  }
}

/** @throws PgTaskError EMBEDDED_DATA_UNWRITABLE when the data is not ours to use. */
export async function requireUsable({ path, cluster }: DataDirectory): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined || cluster === null) return;
  const owner = cluster.owner.uid;
  if (owner === 0) {
    throw unwritable(path, "it belongs to root, and PostgreSQL does not run as root");
  }
  if (uid !== 0 && owner !== uid) {
    throw unwritable(path, `it belongs to user id ${owner}, and we are ${uid}`);
  }
  try {
    await access(path, constants.W_OK);
  } catch (error) {
    throw unwritable(path, errorMessage(error), error);
  }
}

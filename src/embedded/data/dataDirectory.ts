import { access, constants, readdir, readFile, realpath, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { explainSystemError } from "../../shared/systemErrors.js";
import { PgTaskError, systemErrorCode } from "../../shared/errors.js";
import { canRead, type Account } from "../serverAccount.js";

export interface DataDirectory {
  /** Without symbolic links if the folder exists. */
  readonly path: string;
  /** Null if the folder is empty or missing. */
  readonly cluster: {
    readonly major: string;
    readonly owner: { readonly uid: number; readonly gid: number };
    readonly mode: number;
  } | null;
}

/** @throws PgTaskError EMBEDDED_DATA_UNWRITABLE, EMBEDDED_DATA_FOREIGN */
export async function inspect(given: string): Promise<DataDirectory> {
  const absolute = resolve(given);
  const path = await orUnwritable(absolute, unlessMissing(realpath(absolute), absolute));
  const names = await orUnwritable(path, unlessMissing(readdir(path), []));
  if (names.length === 0) return { path, cluster: null };
  if (!names.includes("PG_VERSION")) {
    throw new PgTaskError(
      "EMBEDDED_DATA_FOREIGN",
      `${path} is not a PostgreSQL data folder, and not empty (it contains ${names.toSorted()[0]}): give another data folder`,
    );
  }
  const { uid, gid, mode } = await stat(path);
  const version = readFile(join(path, "PG_VERSION"), "utf8");
  const major = (await orUnwritable(path, version, "its file PG_VERSION cannot be read: ")).trim();
  return { path, cluster: { major, owner: { uid, gid }, mode: mode & 0o777 } };
}

/** Permissions that PostgreSQL refuses: its own for others, and writing for the group. */
const refusedMode = 0o027;

/** @throws PgTaskError EMBEDDED_DATA_VERSION */
export function requireMajor({ path, cluster }: DataDirectory, major: string): void {
  if (cluster === null || cluster.major === major) return;
  throw new PgTaskError(
    "EMBEDDED_DATA_VERSION",
    `the data folder ${path} belongs to PostgreSQL ${cluster.major}, the embedded server is PostgreSQL ${major}: give another data folder, or pg_upgrade this one`,
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
 * Returns a path by which a server started in the folder can open it, even if its account may not enter a parent folder
 * such as /root.
 *
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE
 */
export async function pathFor(account: Account | null, path: string): Promise<string> {
  if (account === null || (await canRead([path], account))) return path;
  if (process.platform === "linux") return "/proc/self/cwd";
  throw unwritable(path, `PostgreSQL does not run as root, and ${account.name} may not enter its parent folders`);
}

async function orUnwritable<T>(path: string, work: Promise<T>, what = ""): Promise<T> {
  return await work.catch((error: unknown) => {
    throw unwritable(path, `${what}${explainSystemError(error)}`, error);
  });
}

async function unlessMissing<T>(work: Promise<T>, fallback: T): Promise<T> {
  return await work.catch((error: unknown) => {
    if (systemErrorCode(error) === "ENOENT") return fallback;
    throw error;
  });
}

/**
 * @throws PgTaskError EMBEDDED_DATA_UNWRITABLE if the data belongs to another user, is read-only, or is open to others
 */
export async function requireUsable({ path, cluster }: DataDirectory): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined || cluster === null) return;
  const owner = cluster.owner.uid;
  if (owner === 0) {
    throw unwritable(path, "it belongs to root, and PostgreSQL does not run as root");
  }
  if (uid !== 0 && owner !== uid) {
    throw unwritable(path, `it belongs to user id ${owner}, and pg-task runs as ${uid}`);
  }
  if ((cluster.mode & refusedMode) !== 0) {
    const mode = cluster.mode.toString(8).padStart(4, "0");
    throw unwritable(path, `its permissions are ${mode}, and PostgreSQL wants them to be 0700: chmod 0700 ${path}`);
  }
  await orUnwritable(path, access(path, constants.W_OK));
}

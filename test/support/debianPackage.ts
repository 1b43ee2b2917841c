import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import type { InstalledPackage } from "../../src/embedded/binaries/installedPackage.js";

const run = promisify(execFile);

/**
 * The PostgreSQL of Debian with this extension: null if it is neither there nor can be installed. The tests that need it
 * are skipped then.
 */
export async function debianPostgres(debianPackage: string, file: string): Promise<InstalledPackage | null> {
  const native = "/usr/lib/postgresql/15";
  const found = await installedProgram(debianPackage, [file]);
  return found === null || !existsSync(`${native}/bin/postgres`) ? null : { platform: "linux", version: "15", native };
}

/**
 * Returns the first of the paths that exists. If there is none and the user is root, first installs the package of
 * Debian. Returns null if that is not possible, because the user is not root, or apt or the package is missing.
 */
export async function installedProgram(debianPackage: string, paths: readonly string[]): Promise<string | null> {
  const find = (): string | null => paths.find((path) => existsSync(path)) ?? null;
  const found = find();
  if (found !== null || process.getuid?.() !== 0 || !existsSync("/usr/bin/apt-get")) return found;
  // RUNLEVEL keeps packages from starting their services.
  const options = { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" } };
  // Other test files may install packages at the same time.
  const wait = ["-o", "DPkg::Lock::Timeout=300"];
  try {
    await run("apt-get", [...wait, "update", "-qq"], options);
    await run("apt-get", [...wait, "install", "-y", "--no-remove", "--no-install-recommends", debianPackage], options);
  } catch {
    return null;
  }
  return find();
}

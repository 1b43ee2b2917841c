import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";

const run = promisify(execFile);

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

import {
  installedPackage,
  packageIn,
  type InstalledPackage,
} from "../../src/embedded/binaries/installedPackage.js";

/** Folder of an npm package with another PostgreSQL than pg-task's own, null when none is given. */
export const otherPackage = process.env["TEST_POSTGRES"] ?? null;

/** The PostgreSQL that this run of the suite starts its servers with. */
export async function serverPackage(): Promise<InstalledPackage> {
  const own = await installedPackage();
  return otherPackage === null ? own : await packageIn(otherPackage, own.platform);
}

import { installedPackage, packageIn, type InstalledPackage } from "../../src/embedded/binaries/installedPackage.js";

/** Folder of the npm package with the PostgreSQL to test; null for pg-task's own. */
export const otherPackage = process.env["TEST_POSTGRES"] ?? null;

/** The PostgreSQL package that this run of the suite starts servers from. */
export async function serverPackage(): Promise<InstalledPackage> {
  const own = await installedPackage();
  return otherPackage === null ? own : await packageIn(otherPackage, own.platform);
}

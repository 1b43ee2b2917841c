import { installedPackage, packageIn, type InstalledPackage } from "../../src/embedded/binaries/installedPackage.js";

/** Folder of the npm package with the PostgreSQL to test. Null means pg-task's own PostgreSQL. */
export const otherPackage = process.env["TEST_POSTGRES"] ?? null;

/** Returns the PostgreSQL package from which this run of the test suite starts servers. */
export async function serverPackage(): Promise<InstalledPackage> {
  const own = await installedPackage();
  return otherPackage === null ? own : await packageIn(otherPackage, own.platform);
}

import { execFile } from "node:child_process";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { temporaryFolder } from "./temporaryFolder.js";

const run = promisify(execFile);
const installed = "/usr/bin/promtool";

/**
 * Returns the path of Prometheus' promtool. If it is missing, unpacks it from Debian's package `prometheus` without
 * installing the package.
 */
export async function findPromtool(): Promise<string> {
  if (await exists(installed)) return installed;
  const folder = await temporaryFolder();
  const download = (): Promise<unknown> => run("apt-get", ["download", "prometheus"], { cwd: folder });
  await download().catch(async () => {
    await run("apt-get", ["-o", "DPkg::Lock::Timeout=300", "update"]);
    await download();
  });
  await run("sh", ["-c", "dpkg-deb -x prometheus_*.deb ."], { cwd: folder });
  return join(folder, installed);
}

async function exists(file: string): Promise<boolean> {
  try {
    await access(file);
    return true;
  } catch {
    return false;
  }
}

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import { chromium, type Browser } from "playwright-core";

const executablePaths = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const run = promisify(execFile);

/** Returns the path of an installed Chromium, or null if there is none. */
const findChromium = (): string | null => executablePaths.find((path) => existsSync(path)) ?? null;

/**
 * Installs Debian's package of Chromium, and returns its path. Returns null if this is not possible, because the user
 * is not root, or apt or the package is missing.
 */
async function installChromium(): Promise<string | null> {
  if (process.getuid?.() !== 0 || !existsSync("/usr/bin/apt-get")) return null;
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  try {
    // Other test files may install the package at the same time.
    const wait = ["-o", "DPkg::Lock::Timeout=300"];
    await run("apt-get", [...wait, "update", "-qq"], { env });
    await run("apt-get", [...wait, "install", "-y", "--no-remove", "--no-install-recommends", "chromium"], {
      env,
    });
  } catch {
    return null;
  }
  return findChromium();
}

/** Reason to skip tests that need a browser. False if there is a browser. */
export const noBrowserReason: string | false =
  (findChromium() ?? (await installChromium())) === null
    ? "no Chromium is installed, and apt cannot install it here: browser tests are skipped"
    : false;

let launched: Promise<Browser> | null = null;

/** Returns the browser of this process. All test files that the process runs share it. */
export async function browser(): Promise<Browser> {
  launched ??= launch();
  return await launched;
}

async function launch(): Promise<Browser> {
  const executablePath = findChromium();
  if (executablePath === null) throw new Error(String(noBrowserReason));
  const started = await chromium.launch({
    executablePath,
    // Chromium needs this option if it runs as root. It opens only pg-task's own page.
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
  // The runner closes the channel after the last test file. Without the browser, nothing keeps the process from ending.
  process.once("disconnect", () => void started.close());
  return started;
}

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { after } from "node:test";
import { promisify } from "node:util";
import { chromium, type Browser } from "playwright-core";

const executablePaths = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const run = promisify(execFile);

/** Path of an installed Chromium; null without one. */
const findChromium = (): string | null => executablePaths.find((path) => existsSync(path)) ?? null;

/** Installs Debian's package; null if that is not possible: not root, no apt, no package. */
async function installChromium(): Promise<string | null> {
  if (process.getuid?.() !== 0 || !existsSync("/usr/bin/apt-get")) return null;
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  try {
    // Other test files install at the same time.
    const wait = ["-o", "DPkg::Lock::Timeout=300"];
    await run("apt-get", [...wait, "update", "-qq"], { env });
    await run("apt-get", [...wait, "install", "-y", "--no-install-recommends", "chromium"], {
      env,
    });
  } catch {
    return null;
  }
  return findChromium();
}

/** Reason to skip tests in a browser; false if there is a browser. */
export const noBrowserReason: string | false =
  (findChromium() ?? (await installChromium())) === null
    ? "no Chromium is installed, and apt cannot install it here: browser tests are skipped"
    : false;

let launched: Promise<Browser> | null = null;
// Registered at the top level: within a test it would run after that test.
after(async () => await (await launched)?.close());

/** The browser of this test file, closed after it. */
export async function browser(): Promise<Browser> {
  launched ??= launch();
  return await launched;
}

async function launch(): Promise<Browser> {
  const executablePath = findChromium();
  if (executablePath === null) throw new Error(String(noBrowserReason));
  return await chromium.launch({
    executablePath,
    // Required as root; it only opens our own page.
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
}

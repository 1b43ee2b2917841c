import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { after } from "node:test";
import { promisify } from "node:util";
import { chromium, type Browser } from "playwright-core";

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const run = promisify(execFile);

/** Where a Chromium of the system's is; null without one. */
const installed = (): string | null => places.find((place) => existsSync(place)) ?? null;

/** Installs Debian's; null where that cannot be done: not root, no apt, no package. */
async function install(): Promise<string | null> {
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
  return installed();
}

/** Says why there is no browser; false where there is one. */
export const noBrowser: string | false =
  (installed() ?? (await install())) === null
    ? "no Chromium is installed, and it cannot be installed here with apt: tests in a browser are left out"
    : false;

let opened: Promise<Browser> | null = null;
// Said within a test it would count for that test alone.
after(async () => await (await opened)?.close());

/** The browser of this test file, closed after it. */
export async function browser(): Promise<Browser> {
  opened ??= open();
  return await opened;
}

async function open(): Promise<Browser> {
  const executablePath = installed();
  if (executablePath === null) throw new Error(String(noBrowser));
  return await chromium.launch({
    executablePath,
    // Root has to; what it opens is our own page.
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
}

import { chromium, type Browser } from "playwright-core";
import { installedProgram } from "./debianPackage.js";

const executablePath = await installedProgram("chromium", [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
]);

/** Reason to skip tests that need a browser. False if there is a browser. */
export const noBrowserReason: string | false =
  executablePath === null
    ? "no Chromium is installed, and apt cannot install it here: browser tests are skipped"
    : false;

let launched: Promise<Browser> | null = null;

/** Returns the browser of this process. All test files that the process runs share it. */
export async function browser(): Promise<Browser> {
  launched ??= launch();
  return await launched;
}

async function launch(): Promise<Browser> {
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

import type { BrowserContextOptions, Page } from "playwright-core";
import { browser } from "./browser.js";
import type { Web } from "./web.js";

/** How long the page may take to show something before a test counts as hanging, in ms. */
const patienceMs = 60_000;

/** A page of a browser's own that has the token, and fails the test for whatever goes wrong in it. */
export async function openPage(
  web: Web,
  path: string,
  options: BrowserContextOptions & { readonly token?: string | null } = {},
): Promise<{ page: Page; mistakes: string[] }> {
  const context = await (await browser()).newContext(options);
  context.setDefaultTimeout(patienceMs);
  const page = await context.newPage();
  const mistakes: string[] = [];
  page.on("pageerror", (error) => mistakes.push(error.message));
  page.on("console", (message) => {
    // A refused request is said there as well.
    if (message.type() === "error" && !/status of 4\d\d/.test(message.text())) {
      mistakes.push(message.text());
    }
  });
  const given = options.token === undefined ? web.token : options.token;
  if (given !== null) await page.goto(`${web.url}/#token=${given}`);
  await page.goto(`${web.url}${path}`);
  return { page, mistakes };
}

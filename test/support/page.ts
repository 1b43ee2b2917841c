import assert from "node:assert/strict";
import { after } from "node:test";
import type { BrowserContextOptions, Page } from "playwright-core";
import { browser } from "./browser.js";
import type { Web } from "./web.js";

/** Time limit for waiting on the page, in ms. */
const timeoutMs = 60_000;

/**
 * Opens a page with the token, in a new browser context, which is closed after the test. The test fails if the page has
 * uncaught or logged errors, unless it expects them.
 */
export async function openPage(
  web: Pick<Web, "url" | "token">,
  path: string,
  options: BrowserContextOptions & { readonly token?: string | null; readonly expectsErrors?: boolean } = {},
): Promise<Page> {
  const context = await (await browser()).newContext(options);
  context.setDefaultTimeout(timeoutMs);
  const page = await context.newPage();
  const errors: string[] = [];
  after(async () => {
    await context.close();
    if (options.expectsErrors !== true) assert.deepEqual(errors, []);
  });
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // The console also reports rejected requests, which are not errors of the page.
    if (message.type() === "error" && !/status of 4\d\d/.test(message.text())) {
      errors.push(message.text());
    }
  });
  const given = options.token === undefined ? web.token : options.token;
  if (given !== null) await page.goto(`${web.url}/#token=${given}`);
  await page.goto(`${web.url}${path}`);
  return page;
}

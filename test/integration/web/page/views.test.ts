import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { Page } from "playwright-core";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { insertSampleTasks } from "../../../support/sampleTasks.js";
import { smallPng } from "../../../support/smallPng.js";
import { startWeb } from "../../../support/startWeb.js";

/** `npm run screenshots` sets the folder in which the screenshots for the documents are kept. */
const images = process.env["TEST_SCREENSHOTS"];

const { client, web, table } = await startWeb(({ target: { database: data, user } }) => ({
  "pg_task.json": ["task", "mail", "nightly"].map((name) => ({ data, user, table: name })),
}));
const sample = await insertSampleTasks(client);

interface View {
  readonly name: string;
  readonly path: string;
  /** What is there when the view is complete. */
  readonly shown: string;
  readonly prepare?: (page: Page) => Promise<unknown>;
}

const views: readonly View[] = [
  { name: "tables", path: "/", shown: "main td" },
  {
    name: "overview",
    path: `/tables/${table}`,
    shown: "table.groups td",
    prepare: async (page) => {
      await page.getByRole("button", { name: "1 day" }).click();
      const plot = page.getByRole("slider", { name: "Run time" });
      await plot.focus();
      // The slow hour.
      await plot.press("End");
      for (let ago = 0; ago < 22; ago++) await plot.press("ArrowLeft");
    },
  },
  { name: "tasks", path: `/tables/${table}/tasks`, shown: "tr[data-id]" },
  {
    name: "selection",
    path: `/tables/${table}/tasks?state=FAIL`,
    shown: "tr[data-id]",
    prepare: (page) => page.getByLabel("Select all tasks on this page").click(),
  },
  { name: "task", path: `/tables/${table}/tasks/${sample.failed}`, shown: "main h2" },
  {
    name: "question",
    path: `/tables/${table}/tasks/${sample.failed}`,
    shown: "main h2",
    prepare: async (page) => {
      await page.getByRole("button", { name: "Delete" }).click();
      const dialog = await page.locator("dialog[open]").boundingBox();
      const { width = 0, height = 0 } = page.viewportSize() ?? {};
      assert.ok(dialog !== null && dialog.x >= 0 && dialog.y >= 0, "the dialog begins on the screen");
      assert.ok(dialog.x + dialog.width <= width && dialog.y + dialog.height <= height, "and ends there");
    },
  },
  { name: "dependencies", path: `/tables/${table}/tasks/${sample.waiting}`, shown: ".graph li" },
  { name: "schedules", path: `/tables/${table}/schedules`, shown: "tr[data-id]" },
  { name: "errors", path: `/tables/${table}/errors`, shown: ".error-groups td" },
  {
    name: "add",
    path: `/tables/${table}/add`,
    shown: "main form",
    prepare: async (page) => {
      await page.getByLabel("input", { exact: true }).fill("CALL refresh_report('sales')");
      await page.getByLabel("group", { exact: true }).fill("reports");
      await page.getByText("More options").click();
      await page.getByLabel("rule", { exact: true }).fill("0 6 * * 1-5");
      await page.getByLabel("zone", { exact: true }).fill("Europe/Berlin");
      await page.getByText("Next times in the zone Europe/Berlin").waitFor();
    },
  },
  { name: "processes", path: "/processes", shown: "main td" },
];

/** The documents show each view once, and one of them also in the other ways. */
const documented = (name: string, width: number, colorScheme: string): string | null =>
  width === 1440 && colorScheme === "light"
    ? name
    : name === "schedules" && width === 390 && colorScheme === "dark"
      ? "phone-dark"
      : null;

describe("every view", { skip: noBrowserReason }, () => {
  for (const [width, height, colorScheme] of [
    [390, 844, "dark"],
    [1440, 900, "light"],
    [2560, 1440, "light"],
  ] as const) {
    it(`fits a screen that is ${width} pixels wide`, async () => {
      const isMobile = width < 720;
      const viewport = { width, height };
      const page = await openPage(web, "/", { viewport, colorScheme, isMobile, hasTouch: isMobile });
      for (const { name, path, shown, prepare } of views) {
        await page.goto(`${web.url}${path}`);
        await page.locator(shown).first().waitFor();
        await page.getByRole("status").getByText("live", { exact: true }).waitFor();
        await prepare?.(page);
        const sideways = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert.equal(sideways, 0, `${name} scrolls sideways`);
        const image = documented(name, width, colorScheme);
        if (images === undefined || image === null) continue;
        await writeFile(join(images, `${image}.png`), smallPng(await page.screenshot()));
      }
    });
  }

  it("uses the space that there is", async () => {
    const desktop = await openPage(web, `/tables/${table}/schedules`, { viewport: { width: 1440, height: 900 } });
    const last = desktop.locator("tr[data-id]").nth(17);
    await last.waitFor();
    // At least 18 schedules are on the screen once all columns have their widths.
    await desktop.waitForFunction("document.querySelectorAll('tr[data-id]')[17].getBoundingClientRect().y < 900");

    await desktop.setViewportSize({ width: 2560, height: 1440 });
    await desktop.goto(`${web.url}/tables/${table}/tasks`);
    const input = desktop.locator("tr[data-id] .sql").first();
    await input.waitFor();
    const { width = 0 } = (await input.boundingBox()) ?? {};
    assert.ok(width > 1000, `the input has ${width} of 2,560 pixels`);

    const phone = await openPage(web, `/tables/${table}`, { viewport: { width: 390, height: 844 }, isMobile: true });
    const group = phone.locator("table.groups tr", { hasText: "billing" });
    await group.getByRole("button", { name: "Resume group billing" }).waitFor();
    assert.match(await group.innerText(), /billing[^]*340/);
  });
});

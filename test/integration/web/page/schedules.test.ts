import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { insertTask, waitForRow } from "../../../support/tasks.js";

const { client, web, table } = await startWeb();
const row = (id: string): string => `tr[data-id="${id}"]`;

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

describe("the page's schedules", { skip: noBrowserReason }, () => {
  it("shows the coming times in the rule's zone and in the reader's", async () => {
    const page = await openPage(web, `/tables/${table}`, { timezoneId: "Asia/Tokyo", locale: "en-GB" });
    await page.getByRole("link", { name: "Schedules" }).click();
    await page.getByText("No schedules yet").waitFor();
    const id = await insertTask(client, "SELECT 'report'", { rule: "30 7 1 1 *", zone: "America/New_York" });
    const cells = page.locator(`${row(id)} td.next`);
    await cells
      .first()
      .getByText(/^1 Jan 20\d\d, 07:30$/)
      .first()
      .waitFor();
    assert.equal(await page.locator(`${row(id)} td.then time`).count(), 2);
    // 07:30 in New York is 21:30 in Tokyo in winter.
    await cells
      .last()
      .getByText(/^1 Jan 20\d\d, 21:30$/)
      .first()
      .waitFor();
    await page.locator(row(id)).getByText("America/New_York").waitFor();
    await page.goto(`${web.url}/tables/${table}/schedules?text=nothing`);
    await page.getByText("No matching schedules.").waitFor();
  });

  it("shows the next times in the page of a schedule, and keeps the tabs in that of the processes", async () => {
    const id = await insertTask(client, "SELECT 'report'", { rule: "30 7 1 1 *", zone: "UTC" });
    const page = await openPage(web, `/tables/${table}/tasks/${id}`, { timezoneId: "UTC" });
    await page.getByText("Next times in the zone UTC:").waitFor();
    const times = await page.locator(".coming li").allInnerTexts();
    assert.equal(times.length, 5);
    assert.ok(
      times.every((text) => /^1 Jan 20\d\d, 07:30 in \d+ d$/.test(text)),
      times.join("\n"),
    );
    await page.getByRole("link", { name: "Processes" }).click();
    await page.getByRole("heading", { name: "Processes" }).waitFor();
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Schedules" }).click();
    await page.locator(row(id)).waitFor();
  });

  it("runs a schedule now, and shows its last runs", async () => {
    const id = await insertTask(client, "SELECT 1/0", { rule: "30 7 1 1 *", zone: "UTC" });
    const page = await openPage(web, `/tables/${table}/schedules`);
    await page.locator(row(id)).getByRole("button", { name: "Run now" }).click();
    const next = page.locator(`tr[data-id]:not([data-id="${id}"])`);
    const failed = next.locator(".last .state.s-FAIL");
    await failed.waitFor();
    assert.match((await failed.getAttribute("title")) ?? "", /^FAIL .*: ERROR: {2}division by zero$/);
    await next.getByRole("button", { name: "Run now" }).click();
    await page.locator(".last:has(.state:nth-child(2))").waitFor();
    await waitForRow(client, "SELECT FROM task OFFSET 2", []);
    const current = (await client.query("SELECT max(id)::text AS id FROM task")).rows[0]?.["id"];
    await page.locator(row(current)).getByRole("link", { name: "All runs of schedule" }).click();
    await page.getByRole("button", { name: `Runs of schedule ${current}` }).waitFor();
    await page.locator(row(id)).waitFor();
    assert.equal(await page.locator("tr[data-id]").count(), 3);
    await page.locator(`${row(id)} th a`).click();
    await page.locator("pre", { hasText: "division by zero" }).waitFor();
  });

  it("says that the run that waits has already failed, and why", async () => {
    const id = await insertTask(client, "SELECT 1/0", {
      rule: "30 7 1 1 *",
      zone: "UTC",
      retry: "3",
      backoff: "1 hour",
    });
    const page = await openPage(web, `/tables/${table}/schedules`);
    await page.locator(row(id)).getByRole("button", { name: "Run now" }).click();
    const tag = page.locator(row(id)).getByText("try 1 failed");
    await tag.waitFor();
    assert.equal(await tag.getAttribute("title"), "ERROR:  division by zero");
  });

  it("pauses and resumes a schedule, and shows paused groups and invalid zones", async () => {
    const id = await insertTask(client, "SELECT 1", { repeat: "1 day", plan: "2999-01-01", key: "nightly job" });
    const broken = await insertTask(client, "SELECT 2", { rule: "30 7 1 1 *", zone: "UTC" });
    const page = await openPage(web, `/tables/${table}/schedules`);
    await page.locator(row(id)).getByText("key nightly job").waitFor();
    await page.locator(row(id)).getByRole("button", { name: "Pause" }).click();
    await page.getByText("None of its runs starts until you resume it.").waitFor();
    await page.getByRole("button", { name: "Pause it" }).click();
    await page.locator(row(id)).getByText("paused").waitFor();
    assert.equal((await client.query("SELECT plan::text FROM task WHERE id = $1", [id])).rows[0]?.plan, "infinity");
    await page.setViewportSize({ width: 1440, height: 900 });
    const actions = page.locator(row(id)).locator("td.do");
    assert.equal(await actions.evaluate((cell) => cell.scrollWidth > cell.clientWidth), false);
    await page.locator(row(id)).getByRole("button", { name: "Resume" }).click();
    await page.locator(row(id)).getByText("1 Jan").first().waitFor();
    await client.query("INSERT INTO task_pause DEFAULT VALUES");
    await page.locator(row(id)).getByText("group paused").waitFor();
    await client.query("DELETE FROM task_pause");
    // As the manager, a session can write an invalid zone. It stands for one that new time zone data no longer contain.
    await client.query("SET pgtask.manager = on");
    await client.query("UPDATE task SET zone = 'Mars/Base' WHERE id = $1", [broken]);
    await client.query("RESET pgtask.manager");
    await client.query("UPDATE task SET max = 1 WHERE id = $1", [id]);
    await page.locator(row(broken)).getByText('time zone "Mars/Base" not recognized').waitFor();
  });
});

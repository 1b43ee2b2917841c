import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Page } from "playwright-core";
import { clusterSchema } from "../../../../src/web/api/schemas.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { insertSampleTasks } from "../../../support/sampleTasks.js";
import { startWeb } from "../../../support/startWeb.js";

const { client, web, table } = await startWeb({ "pg_task.share": " " });
await insertSampleTasks(client);

const ids = async (page: Page): Promise<string[]> =>
  await page.locator("tr[data-id]").evaluateAll((rows) => rows.map((row) => row.getAttribute("data-id") ?? ""));

describe("the page finds", { skip: noBrowserReason }, () => {
  it("the slow hour of yesterday, with the pointer and with the keyboard, and leads to its tasks", async () => {
    const page = await openPage(web, `/tables/${table}`, { timezoneId: "UTC", viewport: { width: 1440, height: 900 } });
    await page.getByRole("button", { name: "1 day" }).click();
    const plot = page.getByRole("slider", { name: "Run time" });
    await plot.focus();
    await plot.press("End");
    const values: (string | null)[] = [];
    for (let hour = 0; hour < 24; hour++) {
      values.push(await plot.getAttribute("aria-valuetext"));
      await plot.press("ArrowLeft");
    }
    const slow = values.findIndex((text) => /median \d\d s/.test(text ?? ""));
    assert.equal(values.filter((text) => /median \d\d s/.test(text ?? "")).length, 1, values.join("\n"));
    const { rows } = await client.query<{ hour: Date; next: Date; failed: number }>(
      `SELECT date_trunc('hour', min(stop)) AS hour, date_trunc('hour', min(stop)) + interval '1 hour' AS next,
         (SELECT count(*)::integer FROM task AS f WHERE f.state = 'FAIL' AND date_trunc('hour', f.stop) = date_trunc('hour', min(t.stop))) AS failed
       FROM task AS t WHERE stop - start > interval '20 s' AND state = 'DONE'`,
    );
    const [{ hour, next, failed } = { hour: new Date(0), next: new Date(0), failed: 0 }] = rows;

    // The same by the pointer.
    const area = await plot.boundingBox();
    assert.ok(area !== null);
    const left = area.x + 62 + ((area.width - 80) * (23 - slow)) / 23;
    await page.mouse.move(left, area.y + 40);
    await page.locator(`[role=slider][aria-valuetext="${values[slow]}"]`).waitFor();
    const clock = `${hour.toISOString().slice(11, 16)} – ${next.toISOString().slice(11, 16)}`;
    assert.match(await page.locator(".plot .chosen").innerText(), new RegExp(`${clock}$`));
    // All plots show the values of this hour.
    assert.match(
      await page.locator(".plot", { hasText: "Finished per hour" }).innerText(),
      new RegExp(`failed ${failed}$`),
    );
    await page.mouse.click(left, area.y + 40);
    await page.getByRole("button", { name: /^Ended .* to/ }).waitFor();
    await page.locator("tr[data-id]").first().waitFor();
    const counted = await client.query(
      `SELECT id::text FROM task WHERE stop >= $1 AND stop < $2 AND state IN ('DONE', 'FAIL', 'GONE') AND start IS NOT NULL
       ORDER BY stop - start DESC, id DESC LIMIT 200`,
      [hour, next],
    );
    assert.deepEqual(
      await ids(page),
      counted.rows.map((row) => row["id"]),
    );
    // Tasks that have ended can be neither stopped nor run now.
    const forAll = page.getByRole("group", { name: "All tasks that match" });
    assert.deepEqual(await forAll.getByRole("button").allTextContents(), ["Delete all"]);
    await page.goBack();
    await page.getByRole("button", { name: "1 day", pressed: true }).waitFor();
    await page.getByText("Slowest hours:").getByRole("link").first().click();
    await page.getByText(/slowest .*of all tasks that match/).waitFor();
    assert.deepEqual(
      await ids(page),
      counted.rows.map((row) => row["id"]),
    );
    // The link of a group keeps the hour, and all that match are counted.
    await page.locator("td.group a").first().click();
    await page.waitForURL(/endedFrom=.*&group=/);
    const { endedFrom, endedTo, group } = Object.fromEntries(new URL(page.url()).searchParams);
    const { rows: matches } = await client.query<{ count: string }>(
      `SELECT count(*) FROM task WHERE stop >= $1 AND stop < $2 AND "group" = $3`,
      [endedFrom, endedTo, group],
    );
    await forAll.getByText(`All that match (${Number(matches[0]?.count).toLocaleString("en")}):`).waitFor();
    await page.goBack();
    await page.goBack();
    await plot.focus();
    await plot.press("End");
    await page.locator(".plot .chosen", { hasText: / – now$/ }).waitFor();
    await plot.press("Enter");
    await page.getByRole("button", { name: /^Ended .* to/ }).click();
    await page.getByRole("button", { name: /^Ended/ }).waitFor({ state: "detached" });
  });

  it("an hour's values by a first tap, and its tasks by a second one", async () => {
    const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, timezoneId: "UTC" };
    const page = await openPage(web, `/tables/${table}`, phone);
    await page.getByRole("button", { name: "1 day" }).tap();
    const plot = page.getByRole("slider", { name: "Run time" });
    const chosen = page.locator(".plot .chosen");
    const tap = async (): Promise<void> => await plot.tap({ position: { x: 200, y: 50 } });
    await tap();
    await chosen.waitFor();
    const hour = await chosen.innerText();
    assert.ok((await plot.getAttribute("aria-valuetext"))?.startsWith(`${hour}: median `));
    // Another hour is shown first, too.
    await plot.tap({ position: { x: 100, y: 50 } });
    await chosen.filter({ hasNotText: hour }).waitFor();
    await tap();
    await chosen.filter({ hasText: hour }).waitFor();
    assert.equal(new URL(page.url()).pathname, `/tables/${table}`);
    await tap();
    await page.getByRole("button", { name: /^Ended .* to/ }).waitFor();
    await page.locator("tr[data-id]").first().waitFor();
  });

  it("tasks by key, role and share, and keeps the columns that the reader chooses", async () => {
    const page = await openPage(web, `/tables/${table}/tasks`);
    await page.getByLabel("Key (exact match)").fill("daily sales");
    await page.waitForFunction(() => document.querySelectorAll("tr[data-id]").length === 5);
    await page.locator("summary", { hasText: "Columns" }).click();
    await page.getByLabel("Key", { exact: true }).check();
    await page.getByLabel("Result", { exact: true }).uncheck();
    await page.keyboard.press("Escape");
    await page.getByLabel("Result", { exact: true }).waitFor({ state: "hidden" });
    const titles = ["Id ↓", "State", "Group", "Key", "Input", "Plan", "Run", "Actions"];
    assert.deepEqual(await page.locator("table.list thead th").allTextContents(), titles);
    await page.reload();
    await page.locator("tr[data-id]").nth(4).waitFor();
    assert.deepEqual(await page.locator("table.list thead th").allTextContents(), titles);
    assert.equal(await page.locator("tr[data-id] td", { hasText: /^daily sales$/ }).count(), 5);
    await page.goto(`${web.url}/tables/${table}/tasks?role=nobody`);
    await page.getByText("No matching tasks.").waitFor();
    assert.equal(await page.getByLabel("Role (exact match)").inputValue(), "nobody");
    await page.goto(`${web.url}/tables/${table}/tasks`);
    await page.getByLabel("Share (exact match)").fill("etl");
    const { rows } = await client.query(`SELECT FROM task WHERE "group" LIKE 'etl %'`);
    assert.ok(rows.length > 0);
    await page.waitForFunction((n) => document.querySelectorAll("tr[data-id]").length === n, rows.length);
    for (const id of await ids(page)) await page.locator(`tr[data-id="${id}"] td`, { hasText: /^etl / }).waitFor();
  });

  it("groups by a part of their names", async () => {
    const page = await openPage(web, `/tables/${table}`);
    await page.getByLabel("Part of a group's name").fill("ETL");
    await page.waitForFunction(() => document.querySelectorAll("table.groups tbody tr").length === 9);
    await page.getByLabel("Part of a group's name").fill("nothing");
    await page.getByText("No matching groups.").waitFor();
  });

  it("one of forty tables, by its name and by its numbers", async () => {
    const cluster = await web.get(clusterSchema, "/api/tables");
    const [one] = cluster.tables;
    assert.ok(one !== undefined && one.summary !== null);
    const { summary } = one;
    const tables = Array.from({ length: 40 }, (_, n) => ({
      ...one,
      id: n === 7 ? one.id : `0000000${n}`,
      table: `queue_${n}`,
      summary: { ...summary, due: { value: (n * 17) % 40, exact: true } },
    }));
    const page = await openPage(web, "/processes", { viewport: { width: 1440, height: 900 } });
    await page.route("**/api/tables", (route) =>
      route.fulfill({ json: { ...cluster, tables }, headers: { "Pg-Task-Access": "full" } }),
    );
    await page.goto(`${web.url}/`);
    const names = page.locator("table.overall tbody th a");
    await page.getByText("40 of 40 tables").waitFor();
    await page.getByRole("button", { name: "Due", exact: true }).click();
    // 39 = 7 × 17 mod 40.
    await page.waitForFunction(() => document.querySelector("table.overall tbody a")?.textContent === "public.queue_7");
    assert.equal(await page.locator("th[aria-sort=descending]").innerText(), "Due ↓");
    await page.getByRole("button", { name: "Due ↓" }).click();
    assert.equal(await names.first().innerText(), "public.queue_0");
    await page.getByRole("searchbox", { name: /^Part of the name/ }).fill("QUEUE_3");
    await page.getByText("11 of 40 tables").waitFor();
    assert.equal(await names.count(), 11);
    await page.getByLabel("Go to a table").fill("queue_7");
    await page.locator("main .tiles").waitFor();
    assert.equal(new URL(page.url()).pathname, `/tables/${table}`);
  });
});

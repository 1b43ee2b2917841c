import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Locator, Page } from "playwright-core";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { Tasks } from "../../../support/tasks.js";

const { client, web, table } = await startWeb();
const tasks = await Tasks.create(client);

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

const taskPath = (id: string): string => `/tables/${table}/tasks/${id}`;
const box = (page: Page, id: string): Locator => page.locator(`.graph a[href="${taskPath(id)}"]`);
const inState = (page: Page, id: string, state: string): Locator =>
  box(page, id).locator(".state", { hasText: new RegExp(`^${state}$`) });

/** Returns the ids in the order of the boxes. */
const shownIds = async (page: Page): Promise<string[]> => await page.locator(".graph .box b").allTextContents();

const lineCount = async (page: Page, status: string): Promise<number> =>
  await page.locator(`.graph .line.${status}`).count();

describe("a task's dependencies on the page", { skip: noBrowserReason }, () => {
  it("shows a chain before, during and after its runs, without a reload", async () => {
    await client.query("SELECT pg_advisory_lock(1), pg_advisory_lock(2)");
    const [one = ""] = await tasks.insert({
      input: "SELECT pg_advisory_lock_shared(1)",
      group: "load",
      plan: "infinity",
    });
    const [two = ""] = await tasks.insert({
      input: "SELECT pg_advisory_lock_shared(2)",
      group: "sum",
      after: `{${one}}`,
    });
    const [three = ""] = await tasks.insert({ input: "SELECT 1/0", group: "report", after: `{${two}}`, upon: "end" });
    const page = await openPage(web, taskPath(two));
    await page.evaluate("window.notReloaded = true");
    for (const id of [one, two, three]) await inState(page, id, "PLAN").waitFor();
    assert.deepEqual(await shownIds(page), [one, two, three]);
    assert.equal(await lineCount(page, "waits"), 2);
    await page.getByText("after the others").waitFor();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Run now" }).count(), 0);
    await page.getByText(`it waits for the end of ${one} (PLAN)`).waitFor();
    await box(page, three).getByText("upon end").waitFor();
    assert.equal(await box(page, two).getAttribute("aria-current"), "page");
    assert.equal(await box(page, two).locator(".hidden").textContent(), `, waits for 1 of 1: ${one}: `);

    await client.query("UPDATE task SET plan = now() WHERE id = $1", [one]);
    await inState(page, one, "WORK").waitFor();
    await client.query("SELECT pg_advisory_unlock(1)");
    await inState(page, one, "DONE").waitFor();
    await inState(page, two, "WORK").waitFor();
    await page.locator(".graph .line.done").waitFor();
    assert.equal(await lineCount(page, "waits"), 1);
    await client.query("SELECT pg_advisory_unlock(2)");
    await inState(page, two, "DONE").waitFor();
    await inState(page, three, "FAIL").waitFor();
    await box(page, three).getByText("division by zero").waitFor();
    assert.equal(await lineCount(page, "done"), 2);
    assert.equal(await page.evaluate("window.notReloaded"), true);

    await box(page, three).click();
    await page.getByRole("heading", { name: `Task ${three}` }).waitFor();
    await box(page, one).waitFor();
    assert.deepEqual(await shownIds(page), [one, two, three]);
    await page.goBack();
    await page.getByRole("heading", { name: `Task ${two}` }).waitFor();
    await box(page, one).focus();
    await page.keyboard.press("Tab");
    assert.equal(await box(page, two).evaluate((element) => element === document.activeElement), true);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Task ${three}` }).waitFor();
  });

  it("shows a fan of five and what waits for all of it", async () => {
    await client.query("SELECT pg_advisory_lock(1)");
    const [load = ""] = await tasks.insert({ input: "CREATE TEMP TABLE part ()", group: "load" });
    const parts = await tasks.insert(
      ...["a", "b", "c", "d", "e"].map((name, index) => ({
        input: `-- part ${name}\nSELECT pg_advisory_lock_shared(1); SELECT ${index === 3 ? "1/0" : "1"}`,
        group: `part ${name}`,
        after: `{${load}}`,
      })),
    );
    const [report = ""] = await tasks.insert({ input: "CALL report()", group: "report", after: `{${parts.join()}}` });
    const [cleanUp = ""] = await tasks.insert({
      input: "SELECT 'clean up'",
      group: "clean",
      after: `{${[load, ...parts, report].join()}}`,
      upon: "fail",
    });
    const viewport = { width: 1280, height: 900 };
    const page = await openPage(web, taskPath(report), { viewport });
    for (const id of parts) await inState(page, id, "WORK").waitFor();
    assert.deepEqual(await shownIds(page), [load, ...parts, report, cleanUp]);
    assert.equal(await page.locator(".graph .line").count(), 5 + 5 + 7);
    await client.query("SELECT pg_advisory_unlock(1)");
    await inState(page, report, "GONE").waitFor();
    await inState(page, cleanUp, "DONE").waitFor();
    await box(page, report).getByText(`task ${parts[3]}, which it waits for, is FAIL`).waitFor();
    assert.deepEqual(await shownIds(page), [load, ...parts, report, cleanUp]);
    // The parts are shown by all of their states, and the failed one is the reason for both.
    await page.locator(".graph .line.failed").first().waitFor();
    await box(page, load).click();
    await page.getByRole("heading", { name: `Task ${load}` }).waitFor();
    await inState(page, report, "GONE").waitFor();
    assert.deepEqual(await shownIds(page), [load, ...parts, report, cleanUp]);
  });

  it("stands for the tasks of a large fan, lists those that wait, and can be scrolled on a phone", async () => {
    const [load = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
    await client.query(
      `INSERT INTO task (input, "group", after) SELECT 'SELECT ' || n, 'part ' || n, ARRAY[$1::bigint] FROM generate_series(1, 60) AS n`,
      [load],
    );
    const [all = ""] = await tasks.insert({
      input: "SELECT 2",
      after: `{${Array.from({ length: 60 }, (_, n) => n + 2).join()}}`,
    });
    const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
    const page = await openPage(web, taskPath(load), phone);
    await page.getByText("and 52 more", { exact: true }).waitFor();
    assert.equal(await page.evaluate("document.documentElement.scrollWidth - innerWidth"), 0);
    const scrolls = (): Promise<number[]> =>
      page.locator(".graph .scroller").evaluate((graph) => [graph.scrollWidth - graph.clientWidth, graph.scrollLeft]);
    const [room = 0] = await scrolls();
    assert.ok(room > 0, "the graph is wider than the phone");
    await page.goto(`${web.url}${taskPath(all)}`);
    await page.getByText("and 52 more", { exact: true }).waitFor();
    await box(page, all).waitFor();
    const view = await page.locator(".graph .scroller").boundingBox();
    const middle = await box(page, all).boundingBox();
    assert.ok(view !== null && middle !== null);
    assert.ok(middle.x >= view.x && middle.x + middle.width <= view.x + view.width, "the task is in view");
    await page.goto(`${web.url}${taskPath(load)}`);
    await page.getByRole("link", { name: "and 52 more" }).click();
    await page.getByText("Waiting for task 1").waitFor();
    await page.locator('tr[data-id="61"]').waitFor();
    assert.equal(await page.locator('tr[data-id="1"], tr[data-id="62"]').count(), 0);
    await page.getByText("Waiting for task 1").click();
    await page.locator('tr[data-id="62"]').waitFor();
  });

  it("zooms, drags and maps a graph that is larger than its panel", async () => {
    let previous = "";
    for (let n = 0; n < 9; n++) {
      const after = { after: `{${previous}}` };
      [previous = ""] = await tasks.insert({ input: `SELECT ${n}`, ...(n === 0 ? { plan: "infinity" } : after) });
    }
    const page = await openPage(web, taskPath(previous), { viewport: { width: 1000, height: 900 } });
    await box(page, previous).waitFor();
    const scroller = page.locator(".graph .scroller");
    const left = (): Promise<number> => scroller.evaluate((element) => element.scrollLeft);
    const start = await left();
    assert.ok(start > 500, "the task at the right end is in view");
    assert.equal(await page.locator(".minimap rect:not(.view)").count(), 9);
    const view = page.locator(".minimap .view");
    const before = await view.getAttribute("x");
    const area = await scroller.boundingBox();
    assert.ok(area !== null);
    // From the free space below the boxes.
    await page.mouse.move(area.x + 300, area.y + area.height - 4);
    await page.mouse.down();
    await page.mouse.move(area.x + 500, area.y + area.height - 4, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction((at) => document.querySelector(".scroller")?.scrollLeft === at, start - 200);
    // The map follows with the next scroll event.
    await page.waitForFunction((x) => document.querySelector(".minimap .view")?.getAttribute("x") !== x, before);
    await page.locator(".minimap").click({ position: { x: 1, y: 3 } });
    assert.equal(await left(), 0);
    await page.getByRole("button", { name: "Fit" }).click();
    await page.locator(".minimap").waitFor({ state: "detached" });
    assert.ok(await page.locator(".pan-zoom .scroller").evaluate((each) => each.scrollWidth <= each.clientWidth));
    assert.ok(((await box(page, previous).boundingBox())?.width ?? 196) < 150);
    await scroller.focus();
    await page.keyboard.press("0");
    await page.getByRole("button", { name: "100 %: full size" }).waitFor();
    await page.locator(".minimap").waitFor();
    // The map shows states as they change.
    await client.query("UPDATE task SET plan = now() WHERE id = 1");
    await page.locator(".minimap .s-DONE").nth(8).waitFor();
  });

  it("escapes markup and scripts in the inputs and errors of other tasks", async () => {
    const evil = `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">`;
    const [one = ""] = await tasks.insert({ input: `SELECT $$${evil}$$::int` });
    const [two = ""] = await tasks.insert({ input: `SELECT $$${evil}$$`, plan: "infinity" });
    const [three = ""] = await tasks.insert({ input: "SELECT 1", after: `{${one},${two}}`, upon: "end" });
    const page = await openPage(web, taskPath(three));
    await inState(page, one, "FAIL").waitFor();
    await box(page, one).getByText(`invalid input syntax for type integer: "${evil}"`).waitFor();
    await box(page, two).getByText(`SELECT $$${evil}$$`).waitFor();
    assert.equal(await page.locator("main script, main img").count(), 0);
    assert.equal(await page.evaluate("window.hacked"), undefined);
    const box1 = await box(page, one).boundingBox();
    assert.equal(box1?.width, 196, "long texts are cut off");
  });

  it("shows nothing for a task without dependencies", async () => {
    const [one = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
    const page = await openPage(web, `/tables/${table}`);
    const answered = page.waitForResponse((response) => response.url().endsWith(`/tasks/${one}/dependencies`));
    await page.goto(`${web.url}${taskPath(one)}`);
    await answered;
    await page.getByRole("heading", { name: "Input" }).waitFor();
    await page.getByRole("heading", { name: "Dependencies" }).waitFor({ state: "detached" });
  });
});

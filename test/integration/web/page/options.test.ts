import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Locator, Page } from "playwright-core";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage, shoot } from "../../../support/page.js";
import { Tasks, waitForRow } from "../../../support/tasks.js";

const { client, web, table } = await startWeb();
const tasks = await Tasks.create(client);

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

/** Returns the value of a setting on the page of a task. */
const setting = (page: Page, name: string): Locator =>
  page.locator(".settings div", { has: page.getByText(name, { exact: true }) }).locator("dd");

const names = async (page: Page): Promise<string[]> => await page.locator(".settings dt").allTextContents();

describe("a task's options on the page", { skip: noBrowserReason }, () => {
  it("shows the last try, its error and the time of the next one", async () => {
    const [id = ""] = await tasks.insert({ input: "SELECT 1/0", group: "retry", retry: 2, backoff: "1 hour" });
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'PLAN' AND attempt = 1", [id]);
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByText("1 of 3 attempts failed", { exact: true }).waitFor();
    const steps = page.getByRole("list", { name: "Times" }).getByRole("listitem");
    assert.deepEqual(await steps.locator("b").allTextContents(), ["Plan", "Start", "Stop", "Next try"]);
    await steps
      .last()
      .getByText(/^in \d+ min$/)
      .waitFor();
    await page.getByLabel("Error of attempt 1", { exact: true }).getByText("division by zero").waitFor();
    await page
      .getByText(
        /^it has failed, and its retry 1 of 2 is planned for \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d: ERROR/,
      )
      .waitFor();
    await shoot(page, "retry-light");
    assert.equal(await setting(page, "retry").textContent(), "2");
    assert.equal(await setting(page, "backoff").textContent(), "01:00:00");

    await page.getByRole("button", { name: "Run now" }).click();
    await page.getByText("2 of 3 attempts failed", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Run now" }).click();
    await page.getByText("attempt 3 of 3", { exact: true }).waitFor();
    await page.locator("main .row .state.s-FAIL").waitFor();
    await page.getByLabel("Error", { exact: true }).getByText("division by zero").waitFor();
    const earlier = page.locator(".errors li");
    assert.equal(await earlier.count(), 2);
    const ends = await earlier.locator("pre").evaluateAll((all) => all.map((each) => each.getAttribute("aria-label")));
    assert.deepEqual(
      ends,
      ends.toSorted((a, b) => String(a).localeCompare(String(b))),
      "the oldest first, as show lists them",
    );
    await earlier.first().locator("summary", { hasText: "22012 ERROR:  division by zero" }).click();
    await earlier.first().locator("pre", { hasText: "SELECT 1/0" }).waitFor();
    assert.ok(!(await names(page)).includes("errors"));
  });

  it("shows args, key, gap, after and upon, and no options that are not used", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
    const [id = ""] = await tasks.insert({
      input: "SELECT $1",
      key: "order 7",
      gap: "90 s",
      after: `{${first}}`,
      upon: "end",
      args: '{"order": 9223372036854775807, "to": "<b>you</b>"}',
    });
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByLabel("Args", { exact: true }).getByText('"order": 9223372036854775807').waitFor();
    assert.equal(await setting(page, "key").textContent(), "order 7");
    assert.equal(await setting(page, "gap").textContent(), "00:01:30");
    assert.equal(await setting(page, "upon").textContent(), "end");
    assert.match(
      (await setting(page, "created").textContent()) ?? "",
      /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d$/,
    );
    const own = await names(page);
    for (const name of ["backoff", "sqlstate", "attempt", "wait", "due"]) assert.ok(!own.includes(name), name);
    await setting(page, "after").getByRole("link", { name: first }).click();
    await page.getByRole("heading", { name: `Task ${first}` }).waitFor();
    const unused = await names(page);
    for (const name of ["after", "upon", "key", "gap", "retry", "args"]) assert.ok(!unused.includes(name), name);
    assert.equal(await page.getByLabel("Args", { exact: true }).count(), 0);
  });

  it("shows that a group waits for its gap, in the list of groups and on the task's page", async () => {
    const row = { input: "SELECT 1", group: "service", gap: "1 hour" };
    const [id = ""] = await tasks.insert(row, row);
    const page = await openPage(web, `/tables/${table}`);
    const group = page.locator("table.groups tr", { hasText: "service" });
    await group.getByText("gap 1 h", { exact: true }).waitFor();
    await page.goto(`${web.url}/tables/${table}/tasks/${id}`);
    await page
      .getByText(/^its gap is 1 h, and a task of its group may have started at .*: it waits for at least/)
      .waitFor();
    await client.query("UPDATE task SET gap = '0' WHERE state = 'PLAN'");
    await page.locator("main .row .state.s-DONE").waitFor();
    await page.goto(`${web.url}/tables/${table}`);
    await group.waitFor();
    await page.getByText("gap 1 h", { exact: true }).waitFor({ state: "detached" });
  });
});

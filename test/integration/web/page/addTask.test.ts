import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Locator, Page } from "playwright-core";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { waitForRow, waitForState } from "../../../support/tasks.js";

const { client, web, table } = await startWeb();

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

const field = (page: Page, name: string): Locator => page.getByLabel(name, { exact: true });

async function columnsOf(id: string, names: string): Promise<unknown> {
  return (await client.query(`SELECT ${names} FROM task WHERE id = $1`, [id])).rows[0];
}

describe("the form that adds a task", { skip: noBrowserReason }, () => {
  it("adds a task with its options", async () => {
    const page = await openPage(web, `/tables/${table}/tasks?group=reports`);
    await page.getByRole("link", { name: "Add task" }).click();
    assert.equal(await field(page, "group").inputValue(), "reports");
    await field(page, "input").fill("SELECT $1");
    await field(page, "args").fill('["seven"]');
    await field(page, "retry").fill("2");
    await field(page, "Start").selectOption("delay");
    await page.getByLabel("Interval").fill("1 day");
    await page.getByText("More options").click();
    assert.equal(await field(page, "timeout").getAttribute("placeholder"), "default: 00:00:00");
    await field(page, "timeout").fill("5 min");
    await field(page, "header").selectOption("no");
    await field(page, "sqlstate").fill("40, 55P03");
    await page.getByRole("button", { name: "Add task" }).click();
    await page.getByRole("heading", { name: "Task 1" }).waitFor();
    await page.locator("main:focus").waitFor();
    const names = `args, retry, timeout::text, header, sqlstate, "group", plan > now() + interval '23 hours' AS later, quote`;
    assert.deepEqual(await columnsOf("1", names), {
      args: ["seven"],
      retry: 2,
      timeout: "00:05:00",
      header: false,
      sqlstate: ["40", "55P03"],
      group: "reports",
      later: true,
      quote: "",
    });
    await page.getByRole("button", { name: "Run now" }).click();
    assert.equal((await waitForState(client, "1", "DONE")).output, "seven");
  });

  it("shows what is wrong at the field, and what the server says", async () => {
    const page = await openPage(web, `/tables/${table}/add`);
    const submit = page.getByRole("button", { name: "Add task" });
    const alert = page.getByRole("alert");
    const refused = async (name: string, problem: string): Promise<void> => {
      await submit.click();
      await page.locator(`#field-${name}-problem`, { hasText: problem }).waitFor();
      // The focus moves after the page has been drawn.
      await page.locator(`[name="${name}"]:focus`).waitFor();
    };
    await refused("input", "Enter the SQL to run.");
    await field(page, "input").fill("SELECT 1");
    await field(page, "args").fill("[1");
    await refused("args", "This is not valid JSON");
    await field(page, "args").fill("[12345678901234567]");
    await refused("args", "would be rounded");
    await field(page, "args").fill("");

    // The server's answer opens the folded options.
    await page.getByText("More options").click();
    await field(page, "timeout").fill("soon");
    await page.getByText("More options").click();
    const wrong = 'invalid input syntax for type interval: "soon"';
    await refused("timeout", wrong);
    await alert.getByText(wrong).waitFor();
    await field(page, "timeout").fill("");
    await client.query(
      `ALTER TABLE task ADD CONSTRAINT mine CHECK (data <> 'wrong');
       INSERT INTO task (input, key, plan) VALUES ('SELECT 1', 'k', 'infinity')`,
    );
    for (const [name, text, problem] of [
      ["keep", "-1 s", "must not be below 0"],
      ["data", "wrong", 'violates check constraint "mine"'],
      ["key", "k", "another task with this key waits"],
    ] as const) {
      await field(page, name).fill(text);
      await refused(name, problem);
      await field(page, name).fill("");
    }
    await field(page, "Start").selectOption("delay");
    await submit.click();
    await alert.getByText("Enter when it starts.").waitFor();
    await page.getByLabel("Interval").fill("a while");
    await submit.click();
    await alert.getByText('invalid input syntax for type interval: "a while"').waitFor();
    await page.locator('[name="plan"]:focus').waitFor();
    assert.equal((await client.query("SELECT FROM task")).rows.length, 1);
  });

  it("shows all that is wrong at once, and keeps what was entered until it is sent", async () => {
    const page = await openPage(web, `/tables/${table}/add`);
    await page.getByText("More options").click();
    for (const [name, text] of Object.entries({
      args: "[1",
      timeout: "soon",
      gap: "often",
      keep: "-1 s",
      backoff: "0",
    })) {
      await field(page, name).fill(text);
    }
    await page.getByRole("button", { name: "Add task" }).click();
    for (const name of ["input", "args", "keep", "timeout", "gap"])
      await page.locator(`#field-${name}-problem`).waitFor();
    await page.locator('[name="input"]:focus').waitFor();
    assert.match(
      await page.getByRole("alert").innerText(),
      /input: Enter[^]*args: This is not[^]*keep: must not be below 0/,
    );

    await page.reload();
    await page.getByText("This form still has what you have entered").waitFor();
    assert.equal(await field(page, "args").inputValue(), "[1");
    await page.goto(`${web.url}/tables/${table}/tasks`);
    await page.getByRole("link", { name: "Add task" }).click();
    assert.equal(await field(page, "timeout").inputValue(), "soon");
    for (const name of ["args", "timeout", "gap", "keep", "backoff"]) await field(page, name).fill("");
    await field(page, "input").fill("SELECT 1");
    await page.getByRole("button", { name: "Add task" }).click();
    await page.getByRole("heading", { name: /^Task \d+$/ }).waitFor();
    assert.equal((await client.query("SELECT FROM task")).rows.length, 1);
    await page.goto(`${web.url}/tables/${table}/add`);
    await page.getByRole("button", { name: "Add task" }).waitFor();
    assert.equal(await field(page, "input").inputValue(), "");
  });

  it("shows the coming times of a rule while it is typed", async () => {
    const page = await openPage(web, `/tables/${table}/add`, { timezoneId: "Asia/Tokyo" });
    await page.getByText("More options").click();
    await field(page, "zone").fill("America/New_York");
    const rule = field(page, "rule");
    await rule.pressSequentially("30 7 1 1");
    await page.locator(".coming .problem").waitFor();
    await rule.pressSequentially(" *");
    await page.getByText("Next times in the zone America/New_York").waitFor();
    // 07:30 in New York is 21:30 in Tokyo in winter.
    const first = await page.locator(".coming li").first().innerText();
    assert.match(first, /^1 Jan 20\d\d, 07:30 in .*, 1 Jan 20\d\d, 21:30 in your time zone$/);
    assert.equal(await page.locator(".coming li").count(), 5);
    await rule.fill("SELECT now() + interval '1 day'");
    await page.getByText("The query returns the next time").waitFor();
    assert.equal((await client.query("SELECT FROM task")).rows.length, 0);
  });

  it("adds a schedule from the page of schedules, and takes back what it says of a field that is changed", async () => {
    const page = await openPage(web, `/tables/${table}/schedules`);
    await page.getByRole("link", { name: "Add schedule" }).click();
    await page.getByRole("heading", { name: "Add a schedule" }).waitFor();
    const submit = page.getByRole("button", { name: "Add schedule" });
    await submit.click();
    const alert = page.getByRole("alert");
    for (const name of ["input", "rule"]) {
      await page.locator(`#field-${name}-problem`).waitFor();
      await alert.getByText(`${name}: Enter`).waitFor();
    }
    await page.locator('[name="input"]:focus').waitFor();
    const rule = field(page, "rule");
    await rule.fill("0 25 * * *");
    await page.locator("#field-rule-problem").waitFor({ state: "detached" });
    await page.locator(".coming .problem").waitFor();
    await field(page, "input").fill("SELECT 1");
    await alert.waitFor({ state: "detached" });
    await submit.click();
    await page.locator("#field-rule-problem", { hasText: "hour: '25' is not within 0-23" }).waitFor();
    await rule.fill("30 7 1 1 *");
    await field(page, "zone").fill("UTC");
    await page
      .getByLabel("Start", { exact: true })
      .getByText("at the next time of its rule")
      .waitFor({ state: "attached" });
    await submit.click();
    await page.getByRole("heading", { name: /^Task \d+$/ }).waitFor();
    const { rows } = await client.query(
      "SELECT rule, zone, to_char(plan AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS plan FROM task",
    );
    assert.deepEqual(rows, [{ rule: "30 7 1 1 *", zone: "UTC", plan: "01-01 07:30" }]);
    await page.goto(`${web.url}/tables/${table}/add?schedule`);
    await page.getByRole("link", { name: "Cancel" }).click();
    await page.locator("tr[data-id] .rule").waitFor();
  });

  it("runs a task again with changes, and copies what the page does not show", async () => {
    await client.query("ALTER TABLE task ADD COLUMN tenant text, ADD COLUMN tags text[]");
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO task (input, args, "group", "null", remote, retry, tenant, tags, rule, zone, data, state, start, stop)
       VALUES ('SELECT 1', '["a"]', 'g', '', 'host=127.0.0.1 port=1 password=secret', 4, 'acme', '{x,y}', '0 7 * * *', 'UTC',
         repeat('x', 300000), 'DONE', now(), now()) RETURNING id`,
    );
    const id = rows[0]?.id ?? "";
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByRole("link", { name: "Run again with changes" }).click();
    await page.getByText(`The schedule of task ${id} is not copied`).waitFor();
    assert.equal(await field(page, "args").inputValue(), '[\n  "a"\n]');
    assert.equal(await field(page, "tenant").inputValue(), "acme");
    assert.equal(await field(page, "rule").inputValue(), "");
    for (const name of ["remote", "null", "data", "tags"]) {
      assert.equal(await field(page, name).inputValue(), `as in task ${id}`, name);
    }
    await field(page, "retry").fill("0");
    await page.getByRole("button", { name: "Change null" }).click();
    await field(page, "null").fill("nil");
    await field(page, "Start").selectOption("at");
    await page.getByLabel("Time, in your time zone").fill("2999-01-01T00:00:00");
    await page.getByRole("button", { name: "Add task" }).click();
    await waitForRow(client, "SELECT FROM task WHERE id > $1", [id]);
    const copy = String(Number(id) + 1);
    await page.getByRole("heading", { name: `Task ${copy}` }).waitFor();
    assert.deepEqual(
      await columnsOf(
        copy,
        `input, args, "group", "null", remote, retry, tenant, tags, rule, length(data) AS length, state`,
      ),
      {
        input: "SELECT 1",
        args: ["a"],
        group: "g",
        null: "nil",
        remote: "host=127.0.0.1 port=1 password=secret",
        retry: 0,
        tenant: "acme",
        tags: ["x", "y"],
        rule: null,
        length: 300_000,
        state: "PLAN",
      },
    );
    await page.goto(`${web.url}/tables/${table}/add?from=${id}`);
    await page.getByRole("button", { name: "Copy the schedule as well" }).click();
    assert.equal(await field(page, "rule").inputValue(), "0 7 * * *");
    await page.waitForFunction(() => document.activeElement?.id === "field-rule");
    await page.goto(`${web.url}/tables/${table}/add?from=404404`);
    await page.getByText("there is no task 404404 in this table").waitFor();
  });
});

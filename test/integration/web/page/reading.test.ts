import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Locator, Page } from "playwright-core";
import { processesSchema } from "../../../../src/web/api/schemas.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { startPgTask } from "../../../support/pgTask.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForRow, waitForState } from "../../../support/tasks.js";
import { Web } from "../../../support/web.js";

const { client, config, web, table } = await startWeb();
const path = (rest = ""): string => `/tables/${table}${rest}`;

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

/** Control characters, and marks that change the order of the text around them. */
const unsafe = "a\u202eb\u0007c\u2066d";
const escaped = "a\\u202eb\\x07c\\u2066d";

/** Returns what the page and the tooltips on it show. */
const shownText = async (page: Page): Promise<string> =>
  await page.evaluate(() =>
    [
      document.body.textContent,
      ...[...document.querySelectorAll("[title]")].map((each) => each.getAttribute("title")),
    ].join("\n"),
  );

/** Returns the value of a setting on the page of a task. */
const setting = (page: Page, name: string): Locator =>
  page.locator(".settings div", { has: page.getByText(name, { exact: true }) }).locator("dd");

const settingNames = async (page: Page): Promise<string[]> => await page.locator(".settings dt").allTextContents();

describe("the page", { skip: noBrowserReason }, () => {
  it("shows control characters and bidirectional marks escaped, as the terminal does", async () => {
    const id = await insertTask(client, `SELECT '${unsafe}'; SELECT 1/0 -- ${unsafe}`, { group: unsafe });
    await waitForState(client, id, "FAIL");
    await client.query("UPDATE task SET data = $1 WHERE id = $2", [JSON.stringify({ unsafe }), id]);
    await client.query("UPDATE task SET error = $1 || error WHERE id = $2", [unsafe, id]);
    await client.query(`INSERT INTO task (input, "group", rule) VALUES ($1, $1, '0 3 * * *')`, [unsafe]);
    await client.query(`INSERT INTO task_pause ("group", reason) VALUES ($1, $1)`, [unsafe]);
    const page = await openPage(web, path());
    for (const rest of ["", "/tasks", `/tasks/${id}`, "/schedules", "/errors"]) {
      await page.goto(`${web.url}${path(rest)}`);
      await page.getByText(escaped).first().waitFor();
      // oxlint-disable-next-line no-control-regex
      assert.doesNotMatch(await shownText(page), /[\u202e\u0007\u2066]/, rest);
    }
    await page.goto(`${web.url}${path("/tasks")}`);
    await page.locator(`tr[data-id="${id}"]`).getByRole("link", { name: escaped }).click();
    await page.waitForURL(/group=/);
    assert.equal(new URL(page.url()).searchParams.get("group"), unsafe);
    await client.query("DELETE FROM task_pause");
  });

  it("shows times with milliseconds and the reader's offset, and highlights SQL and JSON", async () => {
    const id = await insertTask(client, `SELECT 'a' -- b`);
    await waitForState(client, id, "DONE");
    await client.query(
      `UPDATE task SET plan = '2026-07-01 10:00:00.123456+00', start = '2026-07-01 10:00:00.2+00', data = '{"x": [1, null]}' WHERE id = $1`,
      [id],
    );
    const page = await openPage(web, path(`/tasks/${id}`), { timezoneId: "Asia/Kolkata" });
    await page.locator(".times").getByText("2026-07-01 15:30:00.123 +05:30").waitFor();
    await page.locator(".times").getByText("2026-07-01 15:30:00.200 +05:30").waitFor();
    const tokens = async (label: string): Promise<(string | null)[][]> =>
      await page
        .getByLabel(label, { exact: true })
        .locator("span")
        .evaluateAll((spans) => spans.map((span) => [span.className, span.textContent]));
    assert.deepEqual(await tokens("Input"), [
      ["c-keyword", "SELECT"],
      ["c-string", "'a'"],
      ["c-comment", "-- b"],
    ]);
    assert.deepEqual(await tokens("Data"), [
      ["c-name", '"x"'],
      ["c-number", "1"],
      ["c-keyword", "null"],
    ]);
  });

  it("lists the settings that differ from the table's defaults, and all on demand", async () => {
    await client.query("ALTER TABLE task ADD COLUMN own text DEFAULT 'usual'");
    const { rows } = await client.query<{ id: string }>(
      "INSERT INTO task (input, timeout, delimiter, own) VALUES ('SELECT 1', '7 s', ';', 'mine'), ('SELECT 1', DEFAULT, DEFAULT, DEFAULT) RETURNING id",
    );
    const [changed = "", plain = ""] = rows.map(({ id }) => id);
    await waitForState(client, changed, "DONE");
    await waitForState(client, plain, "DONE");
    const page = await openPage(web, path(`/tasks/${changed}`));
    await page.locator(".settings").waitFor();
    assert.deepEqual(await settingNames(page), ["timeout", "delimiter", "created", "own", "pid"]);
    await page.goto(`${web.url}${path(`/tasks/${plain}`)}`);
    await page.locator(".settings").waitFor();
    assert.deepEqual(await settingNames(page), ["created", "pid"]);
    const button = page.getByRole("button", { name: /^Show all \d+ settings$/ });
    assert.equal(await button.getAttribute("aria-expanded"), "false");
    await button.click();
    await page.getByRole("button", { name: /^Show only/ }).waitFor();
    const all = await settingNames(page);
    for (const name of ["max", "timeout", "delimiter", "own", "atomic", "keep"]) assert.ok(all.includes(name), name);
    // A request that is under way would read the column that is gone.
    await page.close();
    await client.query("ALTER TABLE task DROP COLUMN own");
  });

  it("groups errors, and links to their tasks", async () => {
    for (const input of ["SELECT 1/0", "SELECT 2/0", "SELECT nothing"]) {
      await waitForState(client, await insertTask(client, input), "FAIL");
    }
    await client.query("INSERT INTO task (input) VALUES ('SELECT 1')");
    const page = await openPage(web, path("/errors"));
    const row = page.locator("table.error-groups tbody tr").first();
    // The server keeps its last answer for some seconds.
    do {
      await page.reload();
      await row.getByText("division by zero").waitFor();
    } while ((await row.locator("td").first().textContent()) !== "2");
    assert.equal(await page.locator("table.error-groups tbody tr").count(), 2);
    await page.getByText(/^All \d rows were read\.$/).waitFor();
    await row.getByRole("link", { name: /division/ }).click();
    await page.locator('tr[data-id="1"]').waitFor();
    await page.locator('tr[data-id="2"]').waitFor();
    assert.equal(await page.locator("tr[data-id]").count(), 2);
  });

  it("shows runs and queue waits of the last minutes and of a month", async () => {
    await client.query(
      `INSERT INTO task (input, state, plan, start, stop) SELECT 'SELECT 1', 'DONE', at - interval '90 s', at, at + interval '20 ms'
       FROM generate_series(1, 200) AS i, LATERAL (SELECT now() - i * interval '3 hours' AS at) AS t`,
    );
    const id = await insertTask(client, "SELECT 1");
    await waitForState(client, id, "DONE");
    const page = await openPage(web, path());
    // The interval of the run is shown as soon as it has ended.
    await page.getByRole("slider", { name: "Queue wait" }).waitFor();
    await page.getByRole("button", { name: "30 days" }).click();
    await page.getByText("Read from the 201 rows of the table").waitFor();
    const values = await page.getByRole("slider").evaluateAll((all) => all.map((each) => each.ariaValueText));
    assert.equal(values.length, 3);
    assert.match(values[0] ?? "", /^done \d, failed 0$/);
    assert.match(values[1] ?? "", /^median /);
  });

  it("names the leader in the page of a standby, and shows all processes", async () => {
    const standby = await startPgTask(config);
    const other = await Web.connect(standby);
    const processes = await other.get(processesSchema, "/api/processes");
    const leading = await web.get(processesSchema, "/api/processes");
    assert.deepEqual([leading.self.role, processes.self.role], ["leader", "standby"]);
    assert.equal(leading.leader?.pid, processes.leader?.pid);
    assert.deepEqual([leading.leader?.isThis, processes.leader?.isThis], [true, false]);
    assert.deepEqual(
      [leading.standbys.map((each) => each.isThis), processes.standbys.map((each) => each.isThis)],
      [[false], [true]],
    );
    assert.notEqual(processes.managers[0]?.process, null);
    assert.equal(processes.managers[0]?.tableVersion, processes.managers[0]?.latestVersion);
    const { rows } = await client.query<{ version: string }>("SELECT current_setting('server_version') AS version");
    assert.equal(processes.server?.version, rows[0]?.version);

    const page = await openPage(other, path());
    await page.getByText(`The leader is backend ${leading.leader?.pid} at 127.0.0.1, connected since`).waitFor();
    const finished = page.locator(".tile", { hasText: "Finished" }).locator("dd");
    assert.match((await finished.textContent()) ?? "", /^–/);
    assert.equal(await page.getByRole("button", { name: "1 day" }).getAttribute("aria-pressed"), "true");
    await page.getByRole("button", { name: "10 min" }).click();
    await page.getByText("Known only to the leader.").first().waitFor();
    await page.getByRole("link", { name: "Processes" }).first().click();
    const rowsOf = page.getByRole("table", { name: "Leader and standbys" }).locator("tbody tr");
    await rowsOf.nth(1).waitFor();
    assert.deepEqual(await rowsOf.locator("th").allTextContents(), ["leader", "standby"]);
    assert.deepEqual(await rowsOf.locator("td:nth-child(2)").allTextContents(), [
      String(leading.leader?.pid),
      String(processes.standbys[0]?.pid),
    ]);
    await rowsOf.nth(1).getByText("this process").waitFor();
    await page.getByText("in another process").waitFor();
    await page.context().close();
    await standby.stop();
  });
});

describe("a task's options on the page", { skip: noBrowserReason }, () => {
  it("shows the last try, its error and the time of the next one", async () => {
    const id = await insertTask(client, "SELECT 1/0", { group: "retry", retry: 2, backoff: "1 hour" });
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
    assert.ok(!(await settingNames(page)).includes("errors"));
  });

  it("shows args, key, gap, after and upon, and no options that are not used", async () => {
    const first = await insertTask(client, "SELECT 1", { plan: "infinity" });
    const id = await insertTask(client, "SELECT $1", {
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
    const own = await settingNames(page);
    for (const name of ["backoff", "sqlstate", "attempt", "wait", "due"]) assert.ok(!own.includes(name), name);
    await setting(page, "after").getByRole("link", { name: first }).click();
    await page.getByRole("heading", { name: `Task ${first}` }).waitFor();
    await page.locator(".settings").waitFor();
    const unused = await settingNames(page);
    for (const name of ["after", "upon", "key", "gap", "retry", "args"]) assert.ok(!unused.includes(name), name);
    assert.equal(await page.getByLabel("Args", { exact: true }).count(), 0);
  });

  it("shows that a group waits for its gap, in the list of groups and on the task's page", async () => {
    const id = await insertTask(client, "SELECT 1", { group: "service", gap: "1 hour" });
    await insertTask(client, "SELECT 1", { group: "service", gap: "1 hour" });
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

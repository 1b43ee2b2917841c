import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Page } from "playwright-core";
import { processesSchema } from "../../../../src/web/api/schemas.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { startPgTask } from "../../../support/pgTask.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForState } from "../../../support/tasks.js";
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
    const names = (): Promise<string[]> => page.locator(".settings dt").allTextContents();
    await page.locator(".settings").waitFor();
    assert.deepEqual(await names(), ["timeout", "delimiter", "created", "own", "pid"]);
    await page.goto(`${web.url}${path(`/tasks/${plain}`)}`);
    await page.locator(".settings").waitFor();
    assert.deepEqual(await names(), ["created", "pid"]);
    const button = page.getByRole("button", { name: /^Show all \d+ settings$/ });
    assert.equal(await button.getAttribute("aria-expanded"), "false");
    await button.click();
    await page.getByRole("button", { name: /^Show only/ }).waitFor();
    const all = await names();
    for (const name of ["max", "timeout", "delimiter", "own", "atomic", "keep"]) assert.ok(all.includes(name), name);
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
    await page.getByRole("img", { name: /^Queue wait: median \d/ }).waitFor();
    await page.getByRole("button", { name: "30 days" }).click();
    await page.getByText("Read from the 201 rows of the table").waitFor();
    const labels = await page.locator(".plot [role=img]").evaluateAll((all) => all.map((each) => each.ariaLabel));
    assert.equal(labels.length, 3);
    assert.match(labels[0] ?? "", /^Finished per hour: done \d, failed 0$/);
    assert.match(labels[1] ?? "", /^Queue wait: median /);
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

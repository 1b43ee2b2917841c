import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { beforeEach, describe, it } from "node:test";
import type { Locator } from "playwright-core";
import { noBrowserReason } from "../../../support/browser.js";
import { createDatabase } from "../../../support/database.js";
import { openPage } from "../../../support/page.js";
import { PgTask } from "../../../support/pgTask.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForRun, waitForState } from "../../../support/tasks.js";
import { token, Web } from "../../../support/web.js";

const several = new PgTask();
const own = await createDatabase();
const ownClient = await own.connect();
const { client, config, web, table } = await startWeb();

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

const row = (id: string): string => `tr[data-id="${id}"]`;
const range = (from: number, to: number): string[] =>
  Array.from({ length: from - to + 1 }, (_, index) => String(from - index));
const inState = (id: string, state: string): string => `${row(id)} .state.s-${state}`;

describe("the page", { skip: noBrowserReason }, () => {
  it("shows an inserted task as planned, running and done without a reload", async () => {
    const page = await openPage(web, `/tables/${table}/tasks`);
    await page.getByText("No tasks yet").waitFor();
    await page.evaluate("window.notReloaded = true");

    await client.query("SELECT pg_advisory_lock(1)");
    const id = await insertTask(client, "SELECT 'so it ends' FROM pg_advisory_lock_shared(1)", { plan: "2999-01-01" });
    await page.locator(inState(id, "PLAN")).waitFor();
    await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
    await page.locator(inState(id, "WORK")).waitFor();
    await client.query("SELECT pg_advisory_unlock(1)");
    await page.locator(inState(id, "DONE")).waitFor();
    await page.locator(row(id)).getByText("so it ends", { exact: true }).waitFor();
    assert.equal(await page.evaluate("window.notReloaded"), true);

    await client.query("DELETE FROM task");
    await page.getByText("No tasks yet").waitFor();
  });

  it("stops a running task, and retries it", async () => {
    const id = await insertTask(client, "SELECT pg_sleep(3600)");
    await waitForRun(client, id);
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByRole("button", { name: "Stop" }).click();
    assert.equal((await waitForRun(client, id)).crash, 0, "it asks before it stops");
    await page.getByRole("button", { name: "Stop it" }).click();
    await waitForState(client, id, "STOP");
    await page.locator("main .state.s-STOP").first().waitFor();
    await page.locator("pre", { hasText: "canceling statement" }).waitFor();

    await client.query("UPDATE task SET input = 'SELECT 42' WHERE id = $1", [id]);
    await page.getByRole("button", { name: "Retry" }).click();
    await page.locator("pre", { hasText: "42" }).last().waitFor();
    assert.equal((await waitForState(client, id, "DONE")).output, "42");
  });

  it("shows what is paused, and why a task is waiting", async () => {
    await client.query(`INSERT INTO task_pause ("group", reason) VALUES ('halted', 'why not')`);
    const id = await insertTask(client, "SELECT 1", { group: "halted" });
    const page = await openPage(web, `/tables/${table}`);
    await page
      .getByText(/^Group halted has been paused since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d: why not$/)
      .waitFor();
    await page.goto(`${web.url}/tables/${table}/tasks/${id}`);
    await page
      .getByText(
        /^its group "halted" has been paused since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d: why not$/,
      )
      .waitFor();
    await client.query("DELETE FROM task_pause");
    await page.locator("pre", { hasText: "1" }).last().waitFor();
    await page.getByText("Why it is waiting").waitFor({ state: "detached" });
    await page.goto(`${web.url}/tables/${table}/tasks/404404`);
    await page.getByText("there is no task 404404 in this table").waitFor();
    await page.getByRole("link", { name: "All tasks" }).click();
    await page.locator(row(id)).waitFor();
  });

  it("shows a chain that runs alone and what waits for it, and a webhook that fails", async () => {
    await client.query(`INSERT INTO task_webhooks (name, states, failures, error, failed) VALUES ('ends', '{FAIL}', 2, 'status 503', now());
      INSERT INTO task_outbox (webhook, task, state, "group", stop) SELECT 'ends', n, 'FAIL', 'g', now() FROM generate_series(1, 2) AS n;
      SELECT pg_advisory_lock(2)`);
    const alone = await insertTask(client, "SELECT FROM pg_advisory_xact_lock_shared(2)", { alone: "table" });
    await waitForRun(client, alone);
    const page = await openPage(web, `/tables/${table}`);
    await page.getByText(`Task ${alone} runs alone in the table.`).waitFor();
    await page.getByText(/^Webhook ends has not accepted the ends of 2 tasks: status 503 \(last tried /).waitFor();
    const other = await insertTask(client, "SELECT 1");
    await page.goto(`${web.url}/tables/${table}/tasks/${other}`);
    await page.getByText(`it waits for the chain of task ${alone}, which runs alone in the table`).waitFor();
    await client.query("SELECT pg_advisory_unlock(2)");
    await page.locator("main .state.s-DONE").first().waitFor();
    await client.query("DELETE FROM task_outbox; DELETE FROM task_webhooks");
  });

  it("asks for a missing or wrong token", async () => {
    const page = await openPage(web, "/", { token: null });
    await page.getByLabel("Token").waitFor();
    assert.equal(await page.locator("table, .tile").count(), 0);
    await page.getByLabel("Token").fill(token);
    await page.getByRole("button", { name: "Open" }).click();
    await page.locator(".tile").first().waitFor();
    assert.doesNotMatch(page.url(), new RegExp(token));
    await page.context().close();

    const linked = await openPage(web, "/", { token: "stale" });
    await linked.getByText("Wrong token").waitFor();
    // A link that differs only in the part behind # loads no new document.
    await linked.evaluate((given) => {
      location.hash = `token=${given}`;
    }, token);
    await linked.locator(".tile").first().waitFor();
    assert.doesNotMatch(linked.url(), new RegExp(token));
  });

  it("a link with a wrong token logs out neither its own tab nor the others", async () => {
    const page = await openPage(web, "/");
    await page.locator(".tile").first().waitFor();
    const linked = await page.context().newPage();
    const refused = linked.waitForResponse((response) => response.status() === 401);
    await linked.goto(`${web.url}/#token=junk`);
    await refused;
    await linked.locator(".tile").first().waitFor();
    assert.doesNotMatch(linked.url(), /junk/);
    for (const each of [linked, page]) {
      await each.reload();
      await each.locator(".tile").first().waitFor();
      assert.deepEqual(await each.evaluate(() => Object.values(localStorage)), [token]);
    }
  });

  it("stays usable after wrong tokens, and forgets the token in all tabs", async () => {
    const page = await openPage(web, "/", { token: "größe" });
    const input = page.getByLabel("Token");
    await page.getByText("Wrong token").waitFor();
    await page.locator("#token:focus").waitFor();
    for (const wrong of ["not-it", "ключ", "two words"]) {
      await input.fill(wrong);
      await page.keyboard.press("Enter");
      await page.getByText("Wrong token.", { exact: true }).waitFor();
      // The form is still the same, and the next token replaces the wrong one.
      await page.waitForFunction(
        () => document.getSelection()?.toString() !== "" || document.activeElement?.id === "token",
      );
    }
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type(token);
    await page.keyboard.press("Enter");
    await page.locator(".tile").first().waitFor();

    const other = await page.context().newPage();
    await other.goto(web.url);
    await other.locator(".tile").first().waitFor();
    await page.getByRole("button", { name: "Forget token" }).click();
    await input.waitFor();
    await other.getByLabel("Token").waitFor();
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    await page.reload();
    await input.waitFor();
    await input.fill(token);
    await page.keyboard.press("Enter");
    await page.locator(".tile").first().waitFor();
    await other.locator(".tile").first().waitFor();
  });

  it("escapes markup and scripts in the texts of a task", async () => {
    const evil = `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">`;
    const id = await insertTask(client, `SELECT $$${evil}$$; SELECT 1/0`, { group: evil });
    await waitForState(client, id, "FAIL");
    await client.query(`UPDATE task SET data = $1, error = $1 || error WHERE id = $2`, [evil, id]);
    const page = await openPage(web, `/tables/${table}/tasks`);
    for (const path of ["/tasks", `/tasks/${id}`, ""]) {
      await page.goto(`${web.url}/tables/${table}${path}`);
      await page.getByText(evil).first().waitFor();
      assert.equal(await page.locator("main script, main img").count(), 0, path);
    }
    await page.goto(`${web.url}/tables/${table}/tasks/${id}`);
    for (const title of ["Input", "Error", "Output", "Data"]) {
      await page.getByLabel(title, { exact: true }).filter({ hasText: evil }).waitFor();
    }
    assert.equal(await page.evaluate("window.hacked"), undefined);
  });

  it("pages through a hundred thousand tasks, and finds a few among them", async () => {
    await client.query(
      `INSERT INTO task (input, state, start, stop, output, "group", plan)
       SELECT 'SELECT ' || i, 'DONE', now(), now(), i, 'group ' || i % 7, now()
       FROM generate_series(1, 100000) AS i`,
    );
    await client.query("UPDATE task SET state = 'FAIL', error = 'ERROR:  needle', output = '' WHERE id IN (77, 50000)");
    await client.query("ANALYZE task");
    const page = await openPage(web, `/tables/${table}/tasks`);
    const ids = async (): Promise<string[]> => await page.locator("tr[data-id] th").allTextContents();
    await page.locator(row("100000")).waitFor();
    assert.deepEqual(await ids(), range(100_000, 99_951));
    await page.getByRole("button", { name: "Older" }).click();
    await page.locator(row("99950")).waitFor();
    assert.deepEqual(await ids(), range(99_950, 99_901));
    await page.getByRole("button", { name: "Newest" }).click();
    await page.locator(row("100000")).waitFor();

    const searched = page.waitForResponse((response) => response.url().includes("text=needle"));
    await page.getByLabel("Text in input, data or error").fill("needle");
    await searched;
    const found = new Set<string>();
    // Each request scans for a limited time, so the search may need several requests. The page also updates by itself,
    // so its state is read and the button is clicked in one step.
    for (let hasMore = true; hasMore;) {
      const shown = await page.waitForFunction(() => {
        if (document.querySelector("main[aria-busy=false]") === null) return null;
        const further = [...document.querySelectorAll("button")].find((button) =>
          /Older|Continue search/.test(button.textContent),
        );
        further?.click();
        const texts = [...document.querySelectorAll("tr[data-id] th")].map((cell) => cell.textContent);
        return { texts, hasMore: further !== undefined };
      });
      const state = await shown.jsonValue();
      assert.ok(state !== null);
      for (const id of state.texts) found.add(id);
      ({ hasMore } = state);
    }
    assert.deepEqual([...found], ["50000", "77"]);
    await page.goto(`${web.url}/tables/${table}`);
    await page.getByText(/≈ \S+ rows/).waitFor();
  });

  it("continues a search until tasks are found, no rows are left, or it is stopped", async () => {
    const page = await openPage(web, `/tables/${table}`);
    const requested: (string | null)[] = [];
    await page.route(/\/api\/.*text=rare/, async (route) => {
      const before = new URL(route.request().url()).searchParams.get("before");
      requested.push(before);
      const next = { "300": "200", "200": null }[String(before)];
      await route.fulfill({
        json: { tasks: [], next: next === undefined ? "300" : next, scanned: 5 },
      });
    });
    await page.goto(`${web.url}/tables/${table}/tasks?text=rare`);
    await page.getByText("No matching tasks. 5 rows searched so far.").waitFor();
    await page.getByRole("button", { name: "Continue search" }).click();
    await page.getByText("No matching tasks. 15 rows searched.").waitFor();
    await page.getByRole("button", { name: /search/i }).waitFor({ state: "detached" });
    assert.deepEqual([...new Set(requested)], [null, "300", "200"]);

    const gate = new EventEmitter();
    const opened = once(gate, "open");
    await page.route(/\/api\/.*text=endless/, async (route) => {
      const before = new URL(route.request().url()).searchParams.get("before");
      if (before !== null) await opened;
      await route.fulfill({ json: { tasks: [], next: "300", scanned: 5 } });
    });
    await page.goto(`${web.url}/tables/${table}/tasks?text=endless`);
    await page.getByRole("button", { name: "Continue search" }).click();
    await page.getByRole("button", { name: "Stop search" }).click();
    gate.emit("open");
    await page.getByRole("button", { name: "Continue search" }).waitFor();
  });

  it("shows the largest id and a long run time in full, and two lines of a long group name", async () => {
    const largest = "9223372036854775807";
    const group = "a very long name ".repeat(100);
    await client.query(
      `INSERT INTO task (id, input, "group", plan, state, start, stop)
       VALUES ($1, 'SELECT 1', $2, now(), 'DONE', now() - interval '11:59:59', now())`,
      [largest, group],
    );
    const page = await openPage(web, `/tables/${table}/tasks`);
    const cell = page.locator(`${row(largest)} th`);
    await cell.waitFor();
    for (const whole of [cell, page.locator(`${row(largest)} .run`)]) {
      assert.equal(await whole.evaluate((each) => each.scrollWidth - each.clientWidth), 0);
    }
    await page.locator(`${row(largest)} th a`).click();
    const link = page.getByRole("link", { name: /^a very long name/ });
    await link.waitFor();
    const { height = 0 } = (await link.boundingBox()) ?? {};
    assert.ok(height > 0 && height < 60, `${height} px`);
    await link.click();
    await cell.waitFor();
    assert.equal(new URL(page.url()).searchParams.get("group"), group);
  });

  it("can be used by keyboard alone, and on a phone without scrolling sideways", async () => {
    const id = await insertTask(client, `SELECT '${"long ".repeat(100)}'`);
    await waitForState(client, id, "DONE");
    const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
    const page = await openPage(web, `/tables/${table}/tasks`, phone);
    for (const path of ["/tasks", `/tasks/${id}`, ""]) {
      await page.goto(`${web.url}/tables/${table}${path}`);
      await page.locator("main .panel:visible").first().waitFor();
      const wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      assert.equal(wide, 0, path);
    }
    await page.goto(`${web.url}/tables/${table}/tasks`);
    const link = page.locator(`${row(id)} th a`);
    await link.waitFor();
    await link.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Task ${id}` }).waitFor();
    await page.goBack();
    await link.waitFor();
  });

  it("lists several tables, updates them live and navigates between them", async () => {
    const tables = ["task", "mail", "reports", "nightly"];
    const { database: data, user } = own.target;
    await several.start({
      ...config,
      url: own.url,
      "pg_task.json": tables.map((name) => ({ data, user, table: name })),
    });
    const viewport = { width: 1100, height: 420 };
    const page = await openPage(await Web.connect(several), "/", { viewport });
    const due = (name: string): Locator =>
      page
        .locator("table.overall tr", { hasText: `public.${name}` })
        .locator("td")
        .nth(1);
    for (const name of tables) await due(name).getByText("0", { exact: true }).waitFor();
    await ownClient.query(`INSERT INTO mail_pause DEFAULT VALUES;
      INSERT INTO mail (input) SELECT 'SELECT 1' FROM generate_series(1, 12);
      INSERT INTO reports (input) VALUES ('SELECT 1/0')`);
    await due("mail").getByText("12", { exact: true }).waitFor();
    const failed = page.locator("table.overall tr", { hasText: "public.reports" }).locator("td.s-FAIL");
    await failed.getByText("1", { exact: true }).waitFor();
    await page.getByRole("link", { name: "public.mail" }).click();
    await page.getByText(/^The whole table has been paused since/).waitFor();
    const choice = page.getByRole("navigation", { name: "Tables" });
    await choice.getByRole("link", { name: "reports" }).click();
    await page.getByRole("link", { name: "Tasks" }).click();
    await page.locator(inState("1", "FAIL")).waitFor();
    assert.equal(await page.locator("tr[data-id]").count(), 1);
    await page.context().close();
    await several.stop();
    several.lines.length = 0;
    await ownClient.query("TRUNCATE mail, mail_pause, reports RESTART IDENTITY");
  });

  for (const colorScheme of ["light", "dark"] as const) {
    it(`follows the system's ${colorScheme} theme, and remembers a switch`, async () => {
      const page = await openPage(web, `/tables/${table}/tasks`, { colorScheme });
      const switchTo = page.getByRole("button", { name: /^Switch to/ });
      await switchTo.waitFor();
      const isDark = async (): Promise<boolean> => {
        const color = String(await page.evaluate("getComputedStyle(document.body).backgroundColor"));
        return Number(/^rgb\((\d+)/.exec(color)?.[1]) < 128;
      };
      assert.equal(await isDark(), colorScheme === "dark");
      await switchTo.click();
      assert.equal(await isDark(), colorScheme === "light");
      await page.reload();
      await switchTo.waitFor();
      assert.equal(await isDark(), colorScheme === "light", "the choice is remembered");
    });
  }
});

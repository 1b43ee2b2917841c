import assert from "node:assert/strict";
import { once } from "node:events";
import { beforeEach, describe, it } from "node:test";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForRun, waitForState } from "../../../support/tasks.js";

const { database, client, web, table } = await startWeb();

beforeEach(() => client.query("DELETE FROM task; DELETE FROM task_pause"));

describe("the page of a task", { skip: noBrowserReason }, () => {
  it("says who has locked its row, and which task the run of another one waits for", async () => {
    await client.query("CREATE TABLE stock (id integer); INSERT INTO stock VALUES (1)");
    await client.query("SELECT pg_advisory_lock(1)");
    const holder = await insertTask(client, "UPDATE stock SET id = 2; SELECT pg_advisory_xact_lock_shared(1)", {
      group: "holder",
    });
    await waitForRun(client, holder);
    const blocked = await insertTask(client, "UPDATE stock SET id = 3", { group: "blocked" });
    await waitForRun(client, blocked);
    const page = await openPage(web, `/tables/${table}/tasks/${blocked}`);
    await page.getByText(new RegExp(`and waits for .*, blocked by task ${holder}, which runs in`)).waitFor();
    await page.getByRole("link", { name: "Show the blocker" }).click();
    await page.getByRole("heading", { name: `Task ${holder}` }).waitFor();

    const locker = await database.connect();
    const { rows } = await locker.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const locked = await insertTask(client, "SELECT 1", { group: "later", plan: "2999-01-01" });
    await locker.query("BEGIN");
    await locker.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);
    await page.goto(`${web.url}/tables/${table}/tasks/${locked}`);
    await page.getByText(`its row is locked by the open transaction of server process ${rows[0]?.pid}`).waitFor();
    await page.getByText("Show the blocker").click();
    await page.locator(".blocker").getByText("SELECT FROM task WHERE id = $1 FOR UPDATE").waitFor();
    await page.getByRole("button", { name: "End its connection" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(`Server process ${rows[0]?.pid}, application test, user`).waitFor();
    await dialog.getByText("Its last statement: SELECT FROM task WHERE id = $1 FOR UPDATE").waitFor();
    const lost = once(locker, "error");
    await dialog.getByRole("button", { name: "End the connection" }).click();
    await page.locator(".toast", { hasText: `Connection ended: server process ${rows[0]?.pid}.` }).waitFor();
    await lost;
    await page.getByRole("button", { name: "Run it now" }).click();
    await waitForState(client, locked, "DONE");
    await client.query("SELECT pg_advisory_unlock(1)");
    await waitForState(client, blocked, "DONE");
  });

  it("says for how many others it waits, and ends the pause of its group", async () => {
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO task (input, plan) SELECT 'SELECT 1', 'infinity' FROM generate_series(1, 12) RETURNING id`,
    );
    const ids = rows.map(({ id }) => id);
    const waiting = await insertTask(client, "SELECT 2", { after: ids });
    const page = await openPage(web, `/tables/${table}/tasks/${waiting}`);
    await page.getByText(`it waits for the end of 12 tasks: ${ids[0]} (PLAN), `).getByText("and 2 more").waitFor();
    await page
      .getByRole("link", { name: ids[3] ?? "", exact: true })
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Run without waiting" }).click();
    const question = page.getByRole("dialog");
    await question.getByText(`Run task ${waiting} without waiting?`).waitFor();
    await question.getByRole("button", { name: "Run without waiting" }).click();
    await page.locator(".toast", { hasText: `Task ${waiting} no longer waits for others.` }).waitFor();
    await waitForState(client, waiting, "DONE");

    await client.query(`INSERT INTO task_pause ("group", reason) VALUES ('halted', 'why not')`);
    const paused = await insertTask(client, "SELECT 1", { group: "halted" });
    await page.goto(`${web.url}/tables/${table}/tasks/${paused}`);
    await page.getByText(/^its group "halted" has been paused since .*: why not/).waitFor();
    await page.getByRole("button", { name: "Resume group" }).click();
    await waitForState(client, paused, "DONE");
  });

  it("ends the pause of the table, and resumes a paused schedule", async () => {
    await client.query("INSERT INTO task_pause (reason) VALUES ('upgrade')");
    const held = await insertTask(client, "SELECT 1");
    const page = await openPage(web, `/tables/${table}/tasks/${held}`);
    const reasons = page.locator(".reasons");
    await reasons.getByText(/^the whole table has been paused since .*: upgrade$/).waitFor();
    await reasons.getByRole("button", { name: "Resume table" }).click();
    await waitForState(client, held, "DONE");
    await reasons.waitFor({ state: "detached" });
    assert.deepEqual((await client.query("SELECT FROM task_pause")).rows, []);

    const schedule = await insertTask(client, "SELECT 2", { rule: "0 4 1 1 *", zone: "UTC" });
    await client.query("UPDATE task SET plan = 'infinity' WHERE id = $1", [schedule]);
    await page.goto(`${web.url}/tables/${table}/tasks/${schedule}`);
    await reasons.getByRole("button", { name: "Resume the schedule" }).click();
    await reasons.getByText(/^it is planned for \d{4}-01-01 \d\d:00:00\.000 /).waitFor();
    const { rows } = await client.query(
      "SELECT to_char(plan AT TIME ZONE 'UTC', 'MM-DD HH24:MI') AS plan FROM task WHERE id = $1",
      [schedule],
    );
    assert.deepEqual(rows, [{ plan: "01-01 04:00" }]);
  });

  it("offers the statement that lets a task run besides the others of its group", async () => {
    await client.query("SELECT pg_advisory_lock(2)");
    const first = await insertTask(client, "SELECT pg_advisory_xact_lock_shared(2)", { group: "export" });
    await waitForRun(client, first);
    const next = await insertTask(client, "SELECT 2", { group: "export" });
    const page = await openPage(web, `/tables/${table}/tasks/${next}`, {
      permissions: ["clipboard-read", "clipboard-write"],
    });
    await page.getByRole("link", { name: "Copy as a new task" }).waitFor();
    await page.getByRole("button", { name: "Copy statement" }).click();
    await page.locator(".toast", { hasText: "Statement copied." }).waitFor();
    const statement: string = await page.evaluate("navigator.clipboard.readText()");
    assert.equal(statement, `UPDATE "public"."task" SET max = 1 WHERE id = ${next};`);
    await client.query(statement);
    await waitForState(client, next, "DONE");
    await client.query("SELECT pg_advisory_unlock(2)");
    await waitForState(client, first, "DONE");
  });

  it("asks nothing again once the task has ended, whatever happens to others", async () => {
    const id = await insertTask(client, "SELECT 42");
    await waitForState(client, id, "DONE");
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.locator("pre", { hasText: "42" }).last().waitFor();
    await page
      .getByRole("status")
      .filter({ hasText: /^live$/ })
      .waitFor();
    // The first event of the stream makes all resources ask once more.
    await page.waitForLoadState("load");
    const list = await page.context().newPage();
    await list.goto(`${web.url}/tables/${table}/tasks`);
    const asked: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      // What the first events have caused has been asked by the end of the first round.
      if (round === 1) page.on("request", (request) => asked.push(request.url()));
      const other = await insertTask(client, "SELECT 1");
      await waitForState(client, other, "DONE");
      await list.locator(`tr[data-id="${other}"] .state.s-DONE`).waitFor();
    }
    assert.deepEqual(
      asked.filter((url) => !url.endsWith("/events")),
      [],
    );
  });
});

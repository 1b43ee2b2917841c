import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Page } from "playwright-core";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../../support/tasks.js";

const { database, client, web, table } = await startWeb();
const row = (id: string): string => `tr[data-id="${id}"]`;
const inState = (id: string, state: string): string => `${row(id)} .state.s-${state}`;
const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY; DELETE FROM task_pause"));

/** Inserts tasks that have ended. */
async function insertEnded(state: string, count: number, group = "group"): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", state, start, stop, output)
     SELECT 'SELECT 1', $1, $2, '2026-01-01', '2026-01-01', '1' FROM generate_series(1, $3::integer) RETURNING id`,
    [group, state, count],
  );
  return rows.map(({ id }) => id);
}

async function select(page: Page, ids: readonly string[]): Promise<void> {
  for (const id of ids) await page.getByLabel(`Select task ${id}`, { exact: true }).check();
}

/** Waits until the focus is on this kind of element with this name for screen readers, or with this text. */
async function waitForFocus(page: Page, tag: string, name?: string): Promise<void> {
  await page.waitForFunction(
    (wanted) => {
      const element = document.activeElement;
      const found = element?.getAttribute("aria-label") ?? element?.textContent?.trim() ?? "";
      return element?.tagName === wanted.tag && (wanted.name === undefined || found === wanted.name);
    },
    { tag, name },
  );
}

const dialog = (page: Page, name: string) => page.getByRole("dialog").getByRole("button", { name, exact: true });

describe("actions on the page", { skip: noBrowserReason }, () => {
  it("changes many tasks at once, and shows what came of each", async () => {
    const [first = "", second = ""] = await insertEnded("FAIL", 2);
    const later = await insertTask(client, "SELECT 2", { plan: "2999-01-01" });
    const held = await insertTask(client, "SELECT 3", { after: [later] });
    const running = await insertTask(client, "SELECT pg_sleep(3600)", { group: "long" });
    await waitForRun(client, running);
    const page = await openPage(web, `/tables/${table}/tasks`);
    await select(page, [first, second, later, held, running]);
    const bar = page.getByRole("region", { name: "Selected tasks" });
    await bar.getByText("5 tasks selected").waitFor();
    // A task that waits for others cannot be run now.
    for (const name of ["Retry 2", "Run now 1", "Stop 3", "Delete 4"]) {
      await bar.getByRole("button", { name, exact: true }).waitFor();
    }

    const other = await database.connect();
    await other.query("BEGIN");
    await other.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [second]);
    const request = page.waitForRequest((each) => each.url().endsWith("/changes"));
    await bar.getByRole("button", { name: "Retry 2" }).click();
    assert.deepEqual((await request).postDataJSON(), { change: "retry", ids: [first, second], states: ["FAIL"] });
    await page.getByText("1 of 2 tasks planned again.").waitFor();
    await page.getByText(`Not ${second}: row locked by another transaction: try again`).waitFor();
    await waitForFocus(page, "DIV", "What came of it");
    await other.query("ROLLBACK");
    await waitForState(client, first, "DONE");
    await bar.getByText("4 tasks selected").waitFor();

    await bar.getByRole("button", { name: "Stop 3" }).click();
    await waitForFocus(page, "BUTTON", "Cancel");
    await dialog(page, "Cancel").click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await waitForFocus(page, "BUTTON", "Stop 3");
    await waitForRun(client, running);
    await bar.getByRole("button", { name: "Stop 3" }).click();
    await dialog(page, "Stop 3").click();
    await page.getByText("3 of 3 tasks stopped.").waitFor();
    await waitForState(client, running, "STOP");

    await page.getByLabel("Select all tasks on this page").check();
    await bar.getByRole("button", { name: "Delete 5" }).click();
    await dialog(page, "Delete 5").click();
    await page.getByText("5 of 5 tasks deleted.").waitFor();
    await page.getByText("No tasks yet").waitFor();
    assert.deepEqual((await client.query("SELECT FROM task")).rows, []);
  });

  it("counts all tasks that match a filter, changes them with progress, and says what came of it", async () => {
    const failed = await insertEnded("FAIL", 2_300, "mail");
    const [kept = ""] = await insertEnded("FAIL", 1, "other");
    const page = await openPage(web, `/tables/${table}/tasks?group=mail&state=FAIL`);
    const all = page.getByRole("group", { name: "All tasks that match" });
    await all.getByRole("button", { name: "Delete all" }).click();
    await page.getByRole("heading", { name: "Delete 2,300 tasks?" }).waitFor();
    await page.getByText("These are all that match the filter and do not run.").waitFor();
    await dialog(page, "Cancel").click();
    const other = await database.connect();
    await other.query("BEGIN");
    await other.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [failed[7]]);
    await all.getByRole("button", { name: "Delete all" }).click();
    await dialog(page, "Delete 2,300").click();
    await page.getByText("2,299 of 2,300 tasks deleted.").waitFor();
    await page.getByText(`Not ${failed[7]}: row locked by another transaction: try again`).waitFor();
    await other.query("ROLLBACK");
    const { rows } = await client.query<{ id: string }>("SELECT id::text FROM task ORDER BY task.id");
    assert.deepEqual(
      rows.map(({ id }) => id),
      [failed[7], kept],
    );
  });

  it("deletes one task in the list and on its page, and keeps the focus", async () => {
    const [first = "", second = "", third = ""] = await insertEnded("DONE", 3);
    const page = await openPage(web, `/tables/${table}/tasks`);
    await page.locator(row(second)).getByRole("button", { name: "Delete" }).click();
    await dialog(page, "Delete it").click();
    await page.locator(row(second)).waitFor({ state: "detached" });
    // The row below has taken its place.
    await waitForFocus(page, "A", first);
    await page.getByText(`Task ${second} deleted.`).waitFor();

    await page.locator(`${row(third)} th a`).click();
    await page.getByRole("button", { name: "Delete" }).click();
    await dialog(page, "Delete it").click();
    await page.locator(row(first)).waitFor();
    await waitForFocus(page, "MAIN");
    assert.deepEqual((await client.query("SELECT id FROM task")).rows, [{ id: first }]);
  });

  it("confirms nothing by a double click", async () => {
    const id = await insertTask(client, "SELECT 1", { plan: "2999-01-01" });
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByRole("button", { name: "Delete" }).dblclick();
    // Both clicks of this double click hit the button that confirms.
    await dialog(page, "Delete it").evaluate((button) =>
      button.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 2 })),
    );
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await waitForFocus(page, "BUTTON", "Delete");
    assert.equal((await client.query("SELECT FROM task")).rows.length, 1);
  });

  it("keeps the focus on the actions of a task whose state changes", async () => {
    const id = await insertTask(client, "SELECT 1", { plan: "2999-01-01" });
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByRole("button", { name: "Run now" }).focus();
    await page.keyboard.press("Enter");
    await page.locator("main .state.s-DONE").first().waitFor();
    await page.getByRole("button", { name: "Retry" }).waitFor();
    await waitForFocus(page, "BUTTON", "Retry");
    await page.locator("[role=status]", { hasText: `Task ${id} is due now` }).waitFor();
    await page.goto(`${web.url}/tables/${table}/tasks`);
    await page.getByLabel(`Select task ${id}`).focus();
    await client.query("DELETE FROM task");
    await page.getByText("No tasks yet").waitFor();
    await page.waitForFunction(() => document.activeElement !== document.body);
  });

  it("says before a task of a schedule is stopped or deleted that the schedule ends", async () => {
    const id = await insertTask(client, "SELECT 1", { rule: "@yearly" });
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    for (const name of ["Stop", "Delete"]) {
      await page.getByRole("button", { name, exact: true }).click();
      await page.getByText("Its schedule ends with it.").waitFor();
      await dialog(page, "Cancel").click();
    }
  });

  it("says before a stop or a retry which tasks become GONE, and retries without waiting", async () => {
    const first = await insertTask(client, "SELECT pg_sleep(3600)", { group: "load" });
    await waitForRun(client, first);
    const second = await insertTask(client, "SELECT 2", { after: [first] });
    const third = await insertTask(client, "SELECT 3", { after: [second] });
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND wait = 0", [third]);
    const page = await openPage(web, `/tables/${table}/tasks/${first}`);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("2 tasks that wait for it will not run, but become GONE.").waitFor();
    await dialog(page, "Stop it").click();
    const toast = page.locator(".toast");
    await toast.getByText(`Task ${first} stopped.`).waitFor();
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'GONE'", [third]);
    // It does not cover the page once the user goes on.
    await page.keyboard.press("Shift");
    await toast.waitFor({ state: "detached" });

    await page.goto(`${web.url}/tables/${table}/tasks/${second}`);
    const why = page.locator(".reasons");
    await why.getByText(`task ${first}, which it waits for, is STOP`).waitFor();
    await page.getByRole("list", { name: "Times" }).getByText("Gone").waitFor();
    assert.equal(await page.getByText("Start", { exact: true }).count(), 0);
    await page.getByRole("button", { name: "Retry", exact: true }).click();
    await page
      .getByRole("dialog")
      .getByText(`become GONE again, because it waits for others: task ${first} is STOP.`)
      .waitFor();
    await dialog(page, "Retry without waiting").click();
    await toast.getByText(`Task ${second} runs again`).waitFor();
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [second]);

    // Its run is a second one, so this asks, too. What it waits for is DONE now.
    await page.getByRole("button", { name: "Retry", exact: true }).click();
    await page.getByText("It has run without error, and runs a second time.").waitFor();
    await dialog(page, "Cancel").click();
    await page.goto(`${web.url}/tables/${table}/tasks/${third}`);
    await page.getByRole("button", { name: "Retry", exact: true }).click();
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [third]);
  });

  it("says that a pause keeps tasks from starting, and ends it", async () => {
    await client.query(`INSERT INTO task_pause ("group") VALUES ('mail')`);
    const first = await insertTask(client, "SELECT 1", { group: "mail", plan: "2999-01-01" });
    const second = await insertTask(client, "SELECT 2", { group: "mail", plan: "2999-01-01" });
    const page = await openPage(web, `/tables/${table}/tasks?group=mail`);
    const all = page.getByRole("group", { name: "All tasks that match" });
    await all.getByRole("button", { name: "Run now all" }).click();
    await page.getByText("They start only when its pause ends: group mail is paused.").waitFor();
    await dialog(page, "Run now 2").click();
    await page.getByText("2 of 2 tasks planned for now. Not started yet: group mail is paused.").waitFor();
    await client.query("UPDATE task SET plan = '2999-01-01'");
    await page.locator(row(first)).getByRole("button", { name: "Run now" }).click();
    await page.getByText("It starts only when its pause ends: group mail is paused.").waitFor();
    await dialog(page, "Resume group too").click();
    await waitForState(client, first, "DONE");
    assert.deepEqual((await client.query("SELECT FROM task_pause")).rows, []);
    await page.locator(row(second)).getByRole("button", { name: "Run now" }).click();
    await waitForState(client, second, "DONE");
  });

  it("pauses and resumes the table and a group", async () => {
    const id = await insertTask(client, "SELECT 1", { group: "mail", plan: "2999-01-01" });
    const page = await openPage(web, `/tables/${table}`);
    await page.getByRole("button", { name: "Pause group mail", exact: true }).click();
    await page.getByLabel("Reason, shown to others").fill("why not");
    await dialog(page, "Pause it").click();
    await page.getByText(/^Group mail has been paused since .*why not/).waitFor();
    await page.getByRole("button", { name: "Pause table", exact: true }).click();
    await dialog(page, "Pause it").click();
    await page.getByText(/^The whole table has been paused since/).waitFor();
    await waitForFocus(page, "BUTTON", "Resume table");
    assert.equal((await client.query("SELECT FROM task_pause")).rows.length, 2);
    await page.getByRole("button", { name: "Resume table", exact: true }).click();
    await page.getByText(/^The whole table has been paused since/).waitFor({ state: "detached" });
    await waitForFocus(page, "BUTTON", "Pause table");

    await page.goto(`${web.url}/tables/${table}/tasks?group=mail`);
    await page.getByRole("button", { name: "Resume group mail", exact: true }).click();
    await page.getByRole("button", { name: "Pause group mail", exact: true }).waitFor();
    assert.deepEqual((await client.query("SELECT FROM task_pause")).rows, []);
    await page.locator(row(id)).getByRole("button", { name: "Run now" }).click();
    await page.locator(inState(id, "DONE")).waitFor();
  });

  it("filters by time, sorts, and goes to an id", async () => {
    await client.query(
      `INSERT INTO task (input, "group", state, plan, start, stop) VALUES
       ('SELECT 1', 'b', 'DONE', '2026-01-01T10:00:00+09:00', '2026-01-01', '2026-01-01 00:00:02'),
       ('SELECT 2', 'c', 'FAIL', '2026-01-01T11:00:00+09:00', '2026-01-01', '2026-01-01 00:00:01'),
       ('SELECT 3', 'a', 'GONE', '2026-01-01T12:00:00+09:00', '2026-01-01', '2026-01-01 00:00:03')`,
    );
    const page = await openPage(web, `/tables/${table}/tasks`, { timezoneId: "Asia/Tokyo" });
    const ids = async (expected: string): Promise<void> => {
      await page.waitForFunction(
        (wanted) =>
          [...document.querySelectorAll("tr[data-id]")].map((each) => each.getAttribute("data-id")).join() === wanted,
        expected,
      );
    };
    await ids("3,2,1");
    await page.getByRole("button", { name: "Id ↓" }).click();
    await ids("1,2,3");
    await page.locator('th[aria-sort="ascending"]', { hasText: "Id" }).waitFor();
    await page.getByRole("button", { name: "Group" }).click();
    await ids("3,1,2");
    await page.getByText("Only the 3 tasks on this page are sorted by group.").waitFor();
    // The whole cell sorts, not only the word.
    await page.locator("th[data-column=run]").click();
    await ids("3,1,2");
    await page.getByText("The slowest first of all tasks that match.").waitFor();
    await page.getByLabel("Planned from").fill("2026-01-01T11:00:00");
    await ids("3,2");
    await page.getByLabel("to", { exact: true }).fill("2026-01-01T11:30:00");
    await ids("2");
    await page.reload();
    await ids("2");
    assert.equal(await page.getByLabel("Planned from").inputValue(), "2026-01-01T11:00");
    await page.getByLabel("Task id").fill("1");
    await page.getByRole("button", { name: "Go", exact: true }).click();
    await page.getByRole("heading", { name: "Task 1" }).waitFor();
  });

  it("offers the actions on a phone, without scrolling sideways", async () => {
    const [first = ""] = await insertEnded("FAIL", 4);
    const later = await insertTask(client, `SELECT '${"long ".repeat(50)}'`, { plan: "2999-01-01", group: "mail" });
    const page = await openPage(web, `/tables/${table}/tasks?group=mail`, phone);
    await page.locator(row(later)).getByRole("button", { name: "Stop" }).waitFor();
    await page.goto(`${web.url}/tables/${table}/tasks`);
    const isWide = async (): Promise<number> =>
      await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await select(page, [first, later]);
    const bar = page.getByRole("region", { name: "Selected tasks" });
    assert.equal(await isWide(), 0);
    await bar.getByRole("button", { name: "Delete 2" }).tap();
    await dialog(page, "Delete 2").tap();
    await page.getByText("2 of 2 tasks deleted.").waitFor();
    const second = String(Number(first) + 1);
    await page.locator(row(second)).getByRole("button", { name: "Retry" }).tap();
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [second]);
    await page.goto(`${web.url}/tables/${table}`);
    const pause = page.getByRole("button", { name: "Pause group group", exact: true });
    await pause.scrollIntoViewIfNeeded();
    const { x = 0, width = 0 } = (await pause.boundingBox()) ?? {};
    assert.ok(width > 0 && x + width <= 360, `from ${x} px, ${width} px wide`);
    await page.goto(`${web.url}/tables/${table}/add`);
    await page.getByText("More options").tap();
    assert.equal(await isWide(), 0);
    await page.goto(`${web.url}/tables/${table}/tasks/${second}`);
    await page.getByRole("link", { name: "Run again with changes" }).waitFor();
    assert.equal(await isWide(), 0);
  });

  it("tells why an action was refused", async () => {
    const id = await insertTask(client, "SELECT pg_sleep(3600)", { group: "long" });
    await waitForRun(client, id);
    const page = await openPage(web, `/tables/${table}/tasks/${id}`);
    await page.getByRole("button", { name: "Stop" }).click();
    await dialog(page, "Stop it").waitFor();
    // Another user was faster.
    await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND stop IS NOT NULL", [id]);
    await dialog(page, "Stop it").click();
    await page.getByText(`task ${id}: already STOP`).waitFor();
  });
});

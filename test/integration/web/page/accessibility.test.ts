import assert from "node:assert/strict";
import { describe, it } from "node:test";
import axe, { type AxeResults } from "axe-core";
import type { Page } from "playwright-core";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForRun, waitForState } from "../../../support/tasks.js";

const { client, web, table } = await startWeb(({ target: { database: data, user } }) => ({
  "pg_task.json": [
    { data, user },
    { data, user, table: "mail" },
  ],
}));

/** Returns the violations of all rules of axe-core, including its best practices, in one line each. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations: found }: AxeResults = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
  return found.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`));
}

/** Inserts tasks in all states, with results, errors, dependencies, schedules and a paused group. */
async function insertSamples() {
  const failed = await insertTask(client, "SELECT 1/0 -- fails", { group: "mail" });
  await client.query(
    `INSERT INTO task (input, "group", retry, backoff) VALUES ('SELECT 2/0', 'retried', 1, '1 ms');
     INSERT INTO task (input, "group", args) VALUES ('SELECT $1::json', 'args', '["{\\"a\\": [1, true]}"]');
     INSERT INTO task_pause ("group", reason) VALUES ('halted', 'why not');
     INSERT INTO task (input, "group", rule) VALUES ('SELECT 3', 'nightly', '0 3 * * *');
     INSERT INTO task (input, "group", state) VALUES ('SELECT 4', 'ended', 'STOP'), ('SELECT 5', 'ended', 'GONE')`,
  );
  await waitForState(client, failed, "FAIL");
  await client.query(`UPDATE task SET data = '{"b": null}' WHERE id = $1`, [failed]);
  const running = await insertTask(client, "SELECT pg_sleep(3600)", { group: "long" });
  await waitForRun(client, running);
  const waiting = await insertTask(client, "SELECT 6", { group: "last", after: [failed, running] });
  return { failed, running, waiting };
}

const sample = await insertSamples();

describe("axe-core finds no violation", { skip: noBrowserReason }, () => {
  // Colours depend on the scheme, and the layout on the width: both are checked with one run for each scheme.
  for (const [colorScheme, what, viewport] of [
    ["light", "a desktop", { width: 1280, height: 800 }],
    ["dark", "a phone", { width: 360, height: 740 }],
  ] as const) {
    it(`in the login form, ${colorScheme}, on ${what}`, async () => {
      const page = await openPage(web, "/", { colorScheme, viewport, token: null });
      await page.getByRole("heading", { name: "pg-task" }).waitFor();
      assert.deepEqual(await violations(page), []);
      await page.getByLabel("Token").fill("wrong");
      await page.getByRole("button", { name: "Open" }).click();
      await page.getByText("Wrong token").waitFor();
      assert.deepEqual(await violations(page), []);
    });

    it(`on every other page, ${colorScheme}, on ${what}`, async () => {
      const page = await openPage(web, "/", { colorScheme, viewport });
      const found: Record<string, string[]> = {};
      for (const [path, shown] of [
        ["/", "main td"],
        ["/processes", "main td"],
        ["/tables/00000000", "main a"],
        [`/tables/${table}`, "main table.groups"],
        [`/tables/${table}/tasks`, "main tr[data-id]"],
        [`/tables/${table}/tasks?state=DONE&group=nothing`, "main .empty"],
        [`/tables/${table}/tasks/${sample.failed}`, "main .settings"],
        [`/tables/${table}/tasks/${sample.waiting}`, "main .graph"],
        [`/tables/${table}/tasks/${sample.running}`, "main .times"],
        [`/tables/${table}/tasks/404404`, "main .notice"],
        [`/tables/${table}/schedules`, "main tr[data-id]"],
        [`/tables/${table}/errors`, "main table.error-groups"],
        [`/tables/${table}/add`, "main form"],
        [`/tables/${table}/add?from=${sample.failed}`, "main form"],
      ] as const) {
        await page.goto(`${web.url}${path}`);
        await page.locator(shown).first().waitFor();
        for (const each of await violations(page)) (found[path] ??= []).push(each);
        assert.equal(await page.locator("h1").count(), 1, `one h1 on ${path}`);
      }
      await page.goto(`${web.url}/tables/${table}`);
      await page.getByRole("button", { name: "1 day" }).click();
      await page.getByText(/^Read from the/).waitFor();
      found["a day"] = await violations(page);
      await page.goto(`${web.url}/tables/${table}/tasks/${sample.failed}`);
      await page.getByRole("button", { name: /^Show all/ }).click();
      await page.getByText("delimiter", { exact: true }).waitFor();
      found["all settings"] = await violations(page);
      await page.goto(`${web.url}/tables/${table}/tasks`);
      await page.getByLabel(`Select task ${sample.failed}`).click();
      await page.locator("main .selection").waitFor();
      found["a selection"] = await violations(page);
      await page.goto(`${web.url}/tables/${table}/tasks/${sample.failed}`);
      await page.getByRole("button", { name: "Delete" }).click();
      await page.locator("dialog[open]").waitFor();
      found["a question"] = await violations(page);
      assert.deepEqual(found, { "a day": [], "all settings": [], "a selection": [], "a question": [] });
    });
  }

  it("and the first link of a page skips the navigation", async () => {
    const page = await openPage(web, `/tables/${table}/tasks`);
    await page.locator("tr[data-id]").first().waitFor();
    await page.keyboard.press("Tab");
    const link = page.getByRole("link", { name: "Skip to the content" });
    assert.ok(await link.evaluate((each) => each === document.activeElement));
    const box = await link.boundingBox();
    assert.ok(box !== null && box.width > 50 && box.height > 15, "the link is visible while it has the focus");
    await page.keyboard.press("Enter");
    await page.locator("main:focus").waitFor();
    assert.equal(new URL(page.url()).pathname, `/tables/${table}/tasks`);
    await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.activeElement?.closest("main") !== null));
  });
});

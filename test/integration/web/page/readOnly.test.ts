import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startWeb } from "../../../support/startWeb.js";
import { noBrowserReason } from "../../../support/browser.js";
import { openPage } from "../../../support/page.js";
import { insertTask } from "../../../support/tasks.js";
import { token } from "../../../support/web.js";

const readOnly = "only-for-reading-0123";
const { client, web, table } = await startWeb({ "pg_http.readonly": readOnly });

describe("the page with the read-only token", { skip: noBrowserReason }, () => {
  it("shows tasks and schedules, and offers no actions", async () => {
    const id = await insertTask(client, "SELECT 1", { plan: "infinity" });
    const schedule = await insertTask(client, "SELECT 2", { rule: "0 4 1 1 *" });
    for (const [given, buttons] of [
      [token, ["Stop", "Run now"]],
      [readOnly, []],
    ] as const) {
      for (const [path, shown] of [
        [`/tables/${table}`, "h2"],
        [`/tables/${table}/tasks`, `tr[data-id="${id}"]`],
        [`/tables/${table}/tasks/${id}`, "main.task .state"],
        [`/tables/${table}/schedules`, `tr[data-id="${schedule}"]`],
      ] as const) {
        const page = await openPage(web, path, { token: given });
        await page.locator(shown).first().waitFor();
        // The page is complete once its last part is there: the live mark of the header.
        await page.getByText("live", { exact: true }).waitFor();
        const changing = page.locator('.actions button, input[type="checkbox"]:not(details *), a[href*="/add"]');
        if (buttons.length > 0) await changing.first().waitFor();
        assert.equal((await changing.count()) > 0, buttons.length > 0, `${path} with ${given}`);
      }
    }
    const page = await openPage(web, `/tables/${table}/add`, { token: readOnly });
    await page.getByText("This token only allows to read. It cannot add tasks.").waitFor();
    assert.equal(await page.locator("main form").count(), 0);
  });
});

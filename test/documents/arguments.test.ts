import assert from "node:assert/strict";
import { documentedBlocks, psqlTable, textResults } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { only } from "../support/tasks.js";

const page = projectText("docs/arguments.md");
const { client, tasks } = await serve({ "pg_task.delete": false }, "TRUNCATE task RESTART IDENTITY");

for (const [index, { sql, result }] of documentedBlocks(page).entries()) {
  test(`block ${index + 1} of the page is accepted, and does what the page says`, async () => {
    const last = (await textResults(client, sql)).at(-1);
    assert.ok(last !== undefined);
    // The output of a task separates columns by tabs, which the page shows as spaces.
    if (result !== undefined) assert.equal(sameBlanks(psqlTable(last)), sameBlanks(result));
    for (const { state, error } of await tasks.endedOf("SELECT id FROM task WHERE plan <= now()")) {
      assert.deepEqual([state, error], ["DONE", null]);
    }
  });
}

const sameBlanks = (text: string): string =>
  text
    .replaceAll(/-{2,}/g, "-")
    .replaceAll(/[ \t]+/g, " ")
    .replaceAll(/ ?([+|]) ?/g, "$1")
    .replaceAll(/ $/gm, "");

test("expressions over the args run, and the planned task does too", async () => {
  const ended = await tasks.endedOf(`UPDATE task SET plan = now() WHERE "group" = 'audit 2' RETURNING id`);
  assert.equal(only(ended).output, "DELETE of 5000");
});

test("a change of args is refused with the errors of the page", async () => {
  const errors = [...page.matchAll(/^\| `(args = .*?)` +\| 22023 +\| `(.*?)` +\|$/gm)];
  assert.equal(errors.length, 2);
  for (const [, value = "", message = ""] of errors) {
    const insert = `INSERT INTO task (input, args) VALUES ('SELECT 1', ${value.slice("args = ".length)})`;
    await assert.rejects(client.query(insert), { message, code: "22023" });
  }
});

test("a session that runs no task has no pg_task.id, and notices are not kept", async () => {
  await assert.rejects(client.query("SELECT current_setting('pg_task.id')"), /unrecognized configuration parameter/);
  assert.equal(await tasks.value("SELECT current_setting('pg_task.id', true)"), null);
  const [id = "", notice = ""] = await tasks.insert(
    { input: "SHOW pg_task.id" },
    { input: "DO $$ BEGIN RAISE NOTICE 'hidden'; RAISE WARNING 'hidden'; END $$" },
  );
  assert.deepEqual(
    (await tasks.ended(id, notice)).map(({ state, output, error }) => [state, output, error]),
    [
      ["DONE", id, null],
      ["DONE", "DO", null],
    ],
  );
});

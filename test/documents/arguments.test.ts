import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { documentedBlocks } from "../support/documentedBlocks.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { psqlTable, textResults } from "../support/psqlTable.js";
import { until, Tasks } from "../support/tasks.js";

const page = readFileSync(new URL("../../../docs/arguments.md", import.meta.url), "utf8");
const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await client.query("TRUNCATE task RESTART IDENTITY");
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

const blocks = documentedBlocks(page);

for (const [index, { sql, result }] of blocks.entries()) {
  test(`block ${index + 1} of the page is accepted, and does what the page says`, async () => {
    const last = (await textResults(client, sql)).at(-1);
    assert.ok(last !== undefined);
    // The output of a task separates columns by tabs, which the page shows as spaces.
    if (result !== undefined) assert.equal(sameBlanks(psqlTable(last)), sameBlanks(result));
    const ended = await until<{ state: string; error: string | null }>(
      client,
      "SELECT state::text AS state, error FROM task WHERE plan <= now()",
      (rows) => rows.every(({ state }) => !["PLAN", "TAKE", "WORK"].includes(state)),
    );
    for (const { state, error } of ended) assert.deepEqual([state, error], ["DONE", null]);
  });
}

const sameBlanks = (text: string): string =>
  text
    .replaceAll(/-{2,}/g, "-")
    .replaceAll(/[ \t]+/g, " ")
    .replaceAll(/ ?([+|]) ?/g, "$1")
    .replaceAll(/ $/gm, "");

test("expressions over the args run, and the planned task does too", async () => {
  await client.query(`UPDATE task SET plan = now() WHERE "group" = 'audit 2'`);
  const rows = await until<{ output: string }>(
    client,
    `SELECT output FROM task WHERE "group" = 'audit 2' AND state = 'DONE'`,
    (found) => found.length === 1,
  );
  assert.deepEqual(rows, [{ output: "DELETE of 5000" }]);
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
  assert.deepEqual((await client.query("SELECT current_setting('pg_task.id', true) AS id")).rows, [{ id: null }]);
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

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { documentedBlocks } from "../support/documentedBlocks.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectPath } from "../support/project.js";
import { Tasks } from "../support/tasks.js";

const page = readFileSync(projectPath("docs/faq.md"), "utf8");

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

test("a setting for a VACUUM needs two tasks with save", async () => {
  const [together = ""] = await tasks.insert({ input: "SET vacuum_cost_delay = 5; VACUUM" });
  const [failed] = await tasks.ended(together);
  assert.match(failed?.error ?? "", /VACUUM cannot .*transaction block/);
  const [block] = documentedBlocks(page);
  assert.ok(block !== undefined);
  const { rows } = await client.query<{ id: string }>(`${block.sql.replace(/;\s*$/, "")} RETURNING id`);
  const [after = ""] = await tasks.insert({
    input: "SHOW vacuum_cost_delay",
    group: "vacuum",
    save: true,
    live: "1 hour",
  });
  const ended = await tasks.ended(...rows.map(({ id }) => id), after);
  assert.deepEqual(
    ended.map(({ state, output }) => [state, output]),
    [
      ["DONE", "SET"],
      ["DONE", "VACUUM"],
      ["DONE", "5ms"],
    ],
  );
});

test("a session that runs no task has no pg_task.id, and notices are not kept", async () => {
  await assert.rejects(client.query("SHOW pg_task.id"), /unrecognized configuration parameter "pg_task.id"/);
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

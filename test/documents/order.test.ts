import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { documentedBlocks } from "../support/documentedBlocks.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { psqlTable, textResults } from "../support/psqlTable.js";
import { Tasks } from "../support/tasks.js";

const whole = readFileSync(new URL("../../../docs/order.md", import.meta.url), "utf8");
/**
 * The examples of the sections before "Keys" are executed by tutorials.test.ts, and those of "Gap" by
 * gap.test.ts.
 */
const [, page = ""] = whole.split(/\n## (?:Keys|Gap)\n/);

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);

// Objects that the examples use.
await client.query(`
  CREATE TABLE doc (id integer PRIMARY KEY);
  CREATE PROCEDURE report(integer) LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE build_index(integer) LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE send_digest(integer) LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE nightly() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE load() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE aggregate() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE clean_up() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE report() LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION crunch(integer) RETURNS integer LANGUAGE sql AS 'SELECT $1'`);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

const blocks = documentedBlocks(page);

test("the page contains as many blocks as are run", () => {
  assert.equal(blocks.length, [...page.matchAll(/^```sql$/gm)].length);
  assert.equal(
    blocks.filter(({ result }) => result !== undefined).length,
    [...page.matchAll(/^```\n(?!\n|$)/gm)].length,
  );
  assert.ok(blocks.length >= 7);
});

for (const [index, { sql, result }] of blocks.entries()) {
  test(`block ${index + 1} is accepted, and its result is as shown`, async () => {
    const last = (await textResults(client, sql)).at(-1);
    if (result !== undefined && last !== undefined) assert.equal(psqlTable(last), result);
  });
}

test("the tasks of the page run without errors", async () => {
  const { rows } = await client.query<{ id: string }>("UPDATE task SET plan = now() WHERE state = 'PLAN' RETURNING id");
  assert.ok(rows.length >= 4);
  const ended = await tasks.ended(...rows.map(({ id }) => id));
  const { rows: cleaners } = await client.query<{ id: string }>("SELECT id FROM task WHERE upon = 'fail'");
  assert.equal(cleaners.length, 1);
  for (const task of ended) {
    // The task that cleans up has nothing to do.
    const state = task.id === cleaners[0]?.id ? "GONE" : "DONE";
    assert.deepEqual([task.state, task.error], [state, null], task.id);
  }
});

test("a second waiting task of a key is refused", async () => {
  await client.query(`INSERT INTO task (key, plan, input) VALUES ('again', 'infinity', 'SELECT 1')`);
  await assert.rejects(client.query(`INSERT INTO task (key, input) VALUES ('again', 'SELECT 1')`), { code: "23505" });
});

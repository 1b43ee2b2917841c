import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { documentedBlocks } from "../support/documentedBlocks.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { psqlTable, textResults } from "../support/psqlTable.js";
import { Tasks } from "../support/tasks.js";
import { createRole, withConnection } from "../support/taskTables.js";

const whole = readFileSync(new URL("../../../docs/order.md", import.meta.url), "utf8");
/** The examples of the sections before "Keys" are executed by tutorials.test.ts. */
const [, page = "", gapSection = ""] = whole.split(/\n## (?:Keys|Gap)\n/);

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
  CREATE FUNCTION crunch(integer) RETURNS integer LANGUAGE sql AS 'SELECT $1';
  CREATE FUNCTION call_service(integer) RETURNS text LANGUAGE sql AS 'SELECT ''called'''`);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

const blocks = documentedBlocks(page);

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

const gapBlocks = documentedBlocks(gapSection);

/** Returns the block of the section that contains this text, which no other block contains. */
function block(part: string): string {
  const found = gapBlocks.filter(({ sql }) => sql.includes(part));
  assert.equal(found.length, 1, part);
  return found[0]?.sql ?? "";
}

test("the section about gaps has as many blocks as are run", () => {
  assert.equal(gapBlocks.length, 3);
});

test("the tasks of the first block start a gap apart, and the last block ends the wait", async () => {
  await client.query(block("INSERT INTO task"));
  const { rows } = await client.query<{ id: string }>(`SELECT id FROM task WHERE "group" = 'service' ORDER BY id`);
  const ids = rows.map(({ id }) => id);
  await tasks.ended(...ids.slice(0, 2));
  await client.query(block("UPDATE task"));
  const ended = await tasks.ended(...ids);
  assert.deepEqual(
    ended.map(({ state, output }) => [state, output]),
    ids.map(() => ["DONE", "called"]),
  );
  const { rows: gaps } = await client.query<{ near: boolean }>(
    "SELECT b.start - a.start < interval '0.6 s' AS near FROM task AS a, task AS b WHERE a.id = $1 AND b.id = $2",
    ids.slice(0, 2),
  );
  assert.deepEqual(gaps, [{ near: false }]);
});

test("the block about a role sets the role's default", async () => {
  const role = await createRole(client, "batch");
  await client.query(
    `GRANT USAGE ON SCHEMA public TO ${role}; GRANT INSERT, SELECT ON task TO ${role};
     GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`,
  );
  await client.query(block("ALTER ROLE"));
  const { rows } = await withConnection({ ...database.target, user: role }, (producer) =>
    producer.query(`INSERT INTO task (input) VALUES ('SELECT 1') RETURNING gap::text AS gap`),
  );
  assert.deepEqual(rows, [{ gap: "00:00:01" }]);
});

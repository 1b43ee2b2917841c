import assert from "node:assert/strict";
import { documentedBlocks, psqlTable, textResults } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { createRole } from "../support/taskTables.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { microseconds, only } from "../support/tasks.js";
import { withConnectionTo } from "../support/connectTo.js";

const whole = projectText("docs/order.md");
/** The examples of the sections before "Keys" are executed by tutorials.test.ts. */
const [, page = "", gapSection = ""] = whole.split(/\n## (?:Keys|Gap)\n/);

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  // Objects that the examples use.
  `
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
  CREATE FUNCTION call_service(integer) RETURNS text LANGUAGE sql AS 'SELECT ''called'''`,
);

for (const [index, { sql, result }] of documentedBlocks(page).entries()) {
  test(`block ${index + 1} is accepted, and its result is as shown`, async () => {
    const last = (await textResults(client, sql)).at(-1);
    if (result !== undefined && last !== undefined) assert.equal(psqlTable(last), result);
  });
}

test("the tasks of the page run without errors", async () => {
  const ended = await tasks.endedOf("UPDATE task SET plan = now() WHERE state = 'PLAN' RETURNING id");
  assert.ok(ended.length >= 4);
  const cleaner = await tasks.value("SELECT id FROM task WHERE upon = 'fail'");
  for (const task of ended) {
    // The task that cleans up has nothing to do.
    const state = task.id === cleaner ? "GONE" : "DONE";
    assert.deepEqual([task.state, task.error], [state, null], task.id);
  }
});

test("a second waiting task of a key is refused", async () => {
  await client.query(`INSERT INTO task (key, plan, input) VALUES ('again', 'infinity', 'SELECT 1')`);
  await assert.rejects(client.query(`INSERT INTO task (key, input) VALUES ('again', 'SELECT 1')`), { code: "23505" });
});

const gapBlocks = documentedBlocks(gapSection);

/** Returns the block of the section that contains this text, which no other block contains. */
const block = (part: string): string => only(gapBlocks.filter(({ sql }) => sql.includes(part))).sql;

test("the section about gaps has as many blocks as are run", () => {
  assert.equal(gapBlocks.length, 3);
});

test("the tasks of the first block start a gap apart, and the last block ends the wait", async () => {
  await client.query(block("INSERT INTO task"));
  const found = await tasks.rows<{ id: string }>(`SELECT id FROM task WHERE "group" = 'service' ORDER BY id`);
  const ids = found.map(({ id }) => id);
  await tasks.ended(...ids.slice(0, 2));
  await client.query(block("UPDATE task"));
  const ended = await tasks.ended(...ids);
  assert.deepEqual(
    ended.map(({ state, output }) => [state, output]),
    ids.map(() => ["DONE", "called"]),
  );
  const [first, second] = ended;
  assert.ok(microseconds(second?.start ?? null) - microseconds(first?.start ?? null) >= 600_000);
});

test("the block about a role sets the role's default", async () => {
  const role = await createRole(client, "batch");
  await client.query(
    `GRANT USAGE ON SCHEMA public TO ${role}; GRANT INSERT, SELECT ON task TO ${role};
     GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`,
  );
  await client.query(block("ALTER ROLE"));
  const { rows } = await withConnectionTo({ ...database.target, user: role }, (producer) =>
    producer.query(`INSERT INTO task (input) VALUES ('SELECT 1') RETURNING gap::text AS gap`),
  );
  assert.deepEqual(rows, [{ gap: "00:00:01" }]);
});

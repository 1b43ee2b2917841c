import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { only, Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase("SQL_ASCII");
const client = await database.connect();
await pgTask.start({ url: database.url, "pg_task.sleep": 200 });
const tasks = await Tasks.create(client);

/** Inserts a task whose input is not valid UTF-8. (A database with SQL_ASCII accepts this.) Returns the task's id. */
async function insertUnreadable(more = ""): Promise<string> {
  const hex = Buffer.from("SELECT 'a\xe9b'", "latin1").toString("hex");
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, data${more === "" ? "" : ", repeat"})
     VALUES (convert_from(decode('${hex}', 'hex'), 'SQL_ASCII'), 'unreadable'${more}) RETURNING id`,
  );
  return only(rows).id;
}

const error = /^ERROR: {2}task is not readable as UTF-8: invalid byte sequence for encoding "UTF8": 0xe9/;

test("a task whose input is not UTF-8 fails with that error and delays no other", async () => {
  const bad: string[] = [];
  const good: string[] = [];
  for (let n = 0; n < 5; n += 1) {
    bad.push(await insertUnreadable());
    good.push(...(await tasks.insert({ input: `SELECT 'grüße ${n}'` }, { input: "SELECT 1", group: `g${n}` })));
  }
  for (const row of await tasks.ended(...bad)) {
    assert.equal(row.state, "FAIL");
    assert.match(row.error ?? "", error);
    assert.notEqual(row.stop, null);
  }
  const rows = await tasks.ended(...good);
  assert.ok(rows.every(({ state }) => state === "DONE"));
  assert.equal(rows[0]?.output, "grüße 0");
});

test("its successor is planned if it repeats", async () => {
  const id = await insertUnreadable(", '1 hour'");
  assert.equal(only(await tasks.ended(id)).state, "FAIL");
  const { rows } = await client.query<{ state: string }>(
    "SELECT state::text FROM task WHERE parent = $1 AND plan > now()",
    [id],
  );
  assert.deepEqual(rows, [{ state: "PLAN" }]);
});

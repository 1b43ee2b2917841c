import assert from "node:assert/strict";
import { describe } from "node:test";
import { Pool } from "pg";
import { TaskClient } from "../../../../src/library/index.js";
import { cli } from "../../../support/cli.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { only, Tasks } from "../../../support/tasks.js";
import { token, Web } from "../../../support/web.js";

const pgTask = new PgTask();
const database = await createDatabase("SQL_ASCII");
const client = await database.connect();
await pgTask.start({
  url: database.url,
  "pg_http.listen": "127.0.0.1:0",
  "pg_http.token": token,
  "pg_task.sleep": 200,
});
const env = { DATABASE_URL: database.url };
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

describe("a row whose text is not valid UTF-8", async () => {
  // Both invalid bytes, and a text of two-byte characters that no preview must fail to cut.
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, state, output, data)
     VALUES (convert_from('\\xe9ff', 'SQL_ASCII'), 'STOP', 'a' || repeat('é', 3000), 'needle é') RETURNING id`,
  );
  const { id } = only(rows);

  test("is listed and shown, with U+FFFD for each invalid byte", async () => {
    const list = await cli(["list"], { env });
    assert.deepEqual([list.code, list.stderr], [0, ""]);
    assert.match(list.stdout, new RegExp(`^${id}\t.*\t\uFFFD\uFFFD\taé`, "m"));
    for (const args of [
      ["show", id],
      ["show", id, "--json"],
      ["list", "--text", "needle é"],
    ]) {
      const { code, stdout, stderr } = await cli(args, { env });
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, /\uFFFD\uFFFD/);
    }
  });

  test("is returned by a TaskClient for a URL, and by one for a Pool that sets client_encoding", async () => {
    const pool = new Pool({
      connectionString: database.url,
      onConnect: (given): unknown => given.query("SET client_encoding = 'SQL_ASCII'"),
    });
    for (const given of [database.url, pool]) {
      const library = new TaskClient(given);
      assert.equal((await library.get(id))?.input, "\uFFFD\uFFFD");
      await library.end();
    }
    await pool.end();
  });

  test("is returned by the web server", async () => {
    const web = await Web.connect(pgTask);
    const table = await web.tableId();
    for (const path of [`tasks?limit=100`, `tasks/${id}`]) {
      const { status, text } = await web.request(`/api/tables/${table}/${path}`);
      assert.equal(status, 200, text);
      assert.match(text, /"\uFFFD\uFFFD"/);
    }
  });
});

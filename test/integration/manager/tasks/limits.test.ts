import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { eventually, maxConcurrent, Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const name = database.target.database;
// These values differ from those in the file. Each of them must override the file's value.
await client.query(`ALTER DATABASE ${name} SET pg_task.run = 3`);
await client.query(`ALTER DATABASE ${name} SET pg_task."fetch" = 2`);
await client.query(`ALTER DATABASE ${name} SET pg_task.sleep = 137`);
await client.query(`ALTER DATABASE ${name} SET pg_task."output" = '100 kB'`);
await client.query(`ALTER DATABASE ${name} SET pg_task.idle = 'often'`);
await client.query(`ALTER DATABASE ${name} SET pg_task.max = 7`);
await pgTask.start({
  url: database.url,
  "pg_task.run": 9,
  "pg_task.fetch": 50,
  "pg_task.sleep": 1000,
  "pg_task.delimiter": "|",
});

test("no more tasks of a table run at once than pg_task.run of its database", async () => {
  const ids: string[] = [];
  await client.query("SELECT pg_advisory_lock(1)");
  for (let index = 0; index < 12; index += 1) {
    const input = "SELECT pg_advisory_lock_shared(1)";
    ids.push(...(await tasks.insert({ input, group: `g${index}` })));
  }
  // As many tasks as may run wait for the lock. The other tasks have not started.
  await eventually(
    client,
    `SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    (waiting) => waiting.length === 3,
  );
  await client.query("SELECT pg_advisory_unlock(1)");
  const rows = await tasks.ended(...ids);
  assert.deepEqual(new Set(rows.map((row) => row.state)), new Set(["DONE"]));
  assert.equal(maxConcurrent(rows), 3);
});

test("no claim takes more tasks than pg_task.fetch of the database", async () => {
  const { rows } = await client.query<{ most: number }>(
    "SELECT max(count)::integer AS most FROM (SELECT count(*) FROM task GROUP BY take) AS claims",
  );
  assert.ok((rows[0]?.most ?? 0) <= 2, `${rows[0]?.most}`);
});

test("the manager's name in pg_stat_activity shows pg_task.sleep of its database", async () => {
  const { rows } = await client.query<{ application_name: string }>(
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_work%'",
  );
  assert.deepEqual(rows, [{ application_name: "pg_work public task 137" }]);
});

test("output is limited to what the database's setting allows", async () => {
  const row = await tasks.run("SELECT repeat('x', 200000)");
  assert.equal(row.state, "FAIL");
  assert.match(row.error ?? "", /^ERROR: {2}output exceeds 102400 bytes \(pg_task\.output\)\n/);
  const small = await tasks.run("SELECT repeat('x', 50000)");
  assert.equal(small.output?.length, 50_000);
});

test("an invalid setting is logged, and the file's value is used", async () => {
  const line = await pgTask.logged((each) => each["setting"] === "pg_task.idle");
  assert.deepEqual([line["value"], line["used"]], ["often", 60]);
});

test("column defaults follow the database's setting, else the file's", async () => {
  const fresh = await database.connect();
  const { rows } = await fresh.query(
    "INSERT INTO task (input) VALUES ('SELECT 1 AS a, 2 AS b') RETURNING max, delimiter::text, id",
  );
  const [row]: { max: number; delimiter: string; id: string }[] = rows;
  assert.deepEqual([row?.max, row?.delimiter], [7, "|"]);
  const [ended] = await tasks.ended(row?.id ?? "");
  assert.equal(ended?.output, "a|b\n1|2");
});

test("no claim takes more tasks than pg_task.limit of the database", async () => {
  await client.query(`ALTER DATABASE ${name} RESET pg_task."fetch"`);
  await client.query(`ALTER DATABASE ${name} SET pg_task."limit" = 1`);
  await pgTask.stop();
  const ids: string[] = [];
  for (let index = 0; index < 9; index += 1) {
    ids.push(...(await tasks.insert({ input: "SELECT pg_sleep(0.02)", group: `g${index}` })));
  }
  await pgTask.start({ url: database.url });
  const rows = await tasks.ended(...ids);
  assert.equal(new Set(rows.map((row) => row.take)).size, 9);
});

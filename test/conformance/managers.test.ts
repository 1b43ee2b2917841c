import assert from "node:assert/strict";
import { eventually } from "../support/tasks.js";
import { cli } from "../support/cli.js";
import { createDatabase, onServer } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const other = await createDatabase("empty");
const client = await database.connect();
const { user } = database.target;
const name = (each: typeof database): string => each.target.database;

/** Runs `work` while pg-task runs with this configuration. */
async function whileServing(
  configuration: Readonly<Record<string, unknown>>,
  work: () => Promise<void>,
): Promise<void> {
  await pgTask.start({ url: database.url, ...configuration });
  await work();
  await pgTask.stop();
}

/** The application names of the managers in a database. */
async function managers(datname: string): Promise<string[]> {
  const names = await onServer((server) =>
    server.query<{ application_name: string }>(
      "SELECT application_name FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'pg_work %' ORDER BY 1",
      [datname],
    ),
  );
  return names.rows.map((row) => row.application_name);
}

test("§2 without entries the connection's own database and user are served", async () => {
  await whileServing({}, async () => {
    assert.deepEqual(await managers(name(database)), ["pg_work public task 1000"]);
  });
});

test("§2 pg_task.data and pg_task.user apply to an entry that names neither", async () => {
  const entries = [{ sleep: 123 }];
  const configuration = { "pg_task.data": name(other), "pg_task.user": user };
  await whileServing({ ...configuration, "pg_task.json": entries }, async () => {
    assert.deepEqual(await managers(name(other)), ["pg_work public task 123"]);
    assert.deepEqual(await managers(name(database)), []);
  });
});

test("§2 pg_task.schema and pg_task.table name the task table unless the entry does", async () => {
  const location = { "pg_task.schema": "plant", "pg_task.table": "job" };
  const entries = [
    { data: name(database), user },
    { data: name(database), user, schema: "own", table: "mine" },
  ];
  await whileServing({ ...location, "pg_task.json": entries }, async () => {
    assert.deepEqual(await managers(name(database)), ["pg_work own mine 1000", "pg_work plant job 1000"]);
    await client.query("INSERT INTO plant.job (input) VALUES ('SELECT 1')");
    await eventually(client, "SELECT FROM plant.job WHERE state = 'DONE'");
  });
});

test("§2 an entry's pg_task.reset is how often orphans are looked for", async () => {
  const entries = [{ data: name(database), user, "pg_task.reset": "1 sec" }];
  await whileServing({ "pg_task.json": entries, "pg_task.sleep": 100 }, async () => {
    // The task is an orphan that no manager has seen before: no backend has the identity in its `owner`.
    await client.query(
      "INSERT INTO task (input, state, owner) VALUES ('SELECT 1', 'WORK', '1 2001-01-01T00:00:00.000000')",
    );
    await eventually(client, "SELECT FROM task WHERE state = 'DONE'");
  });
});

test("§3 a row inserted as TAKE or WORK holds up nobody and runs once it is set to PLAN, and one in a final state never runs", async () => {
  await client.query("TRUNCATE task");
  const ended = async (input: string, count: number): Promise<unknown> =>
    await eventually(
      client,
      `SELECT FROM task WHERE input = '${input}' AND state = 'DONE' AND output IS NOT NULL`,
      (rows) => rows.length === count,
    );
  await whileServing({ "pg_task.sleep": 100, "pg_task.reset": "1 sec" }, async () => {
    await client.query(
      `INSERT INTO task (input, state, "group") SELECT 'SELECT 1', state::state, state
       FROM unnest(ARRAY['TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP']) AS state`,
    );
    await client.query(`INSERT INTO task (input, "group") VALUES ('SELECT 2', 'WORK')`);
    await ended("SELECT 2", 1);
    // The manager looks for orphans, and finds this one.
    await client.query(
      "INSERT INTO task (input, state, owner) VALUES ('SELECT 3', 'WORK', '1 2001-01-01T00:00:00.000000')",
    );
    await ended("SELECT 3", 1);
    const { rows } = await client.query<{ id: string }>(
      "SELECT id::text AS id FROM task WHERE state IN ('TAKE', 'WORK') ORDER BY id",
    );
    assert.equal(rows.length, 2);
    const id = rows[1]?.id ?? "";
    const { stdout } = await cli(["why", id], { env: { DATABASE_URL: database.url } });
    const remedy = `pg-task stop ${id} && pg-task retry ${id} runs it`;
    assert.equal(stdout, `orphaned\tit is in WORK, but no session owns it\t${remedy}\n`);
    await client.query("UPDATE task SET state = 'PLAN' WHERE state IN ('TAKE', 'WORK')");
    await ended("SELECT 1", 2);
  });
  const { rows } = await client.query(
    `SELECT "group", state::text AS state, output FROM task WHERE input = 'SELECT 1' ORDER BY id`,
  );
  assert.deepEqual(rows, [
    { group: "TAKE", state: "DONE", output: "1" },
    { group: "WORK", state: "DONE", output: "1" },
    ...["DONE", "FAIL", "GONE", "STOP"].map((state) => ({ group: state, state, output: null })),
  ]);
});

test("§2 pg_work.fetch limits how many tasks one statement expires", async () => {
  await whileServing({ "pg_work.fetch": 3 }, async () => {
    await client.query("TRUNCATE task");
    await client.query("INSERT INTO task (input, plan) SELECT 'SELECT 1', '2001-01-01' FROM generate_series(1, 10)");
    await eventually(client, "SELECT FROM task WHERE state = 'GONE'", (rows) => rows.length === 10);
    const { rows } = await client.query<{ max: number }>(
      "SELECT max(n)::integer AS max FROM (SELECT count(*) AS n FROM task GROUP BY stop) AS statements",
    );
    assert.deepEqual(rows, [{ max: 3 }]);
  });
});

import assert from "node:assert/strict";
import { it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { only } from "../../support/tasks.js";

const database = await createDatabase("empty");
const client = await database.connect();

/** Starts a process of the cluster `name`, which serves the table of this name. */
async function start(name: string): Promise<TestProcess> {
  const entry = { url: database.url, table: name };
  return await startProcess({
    config: { url: database.url, "pg_conf.name": name, "pg_task.delete": false, "pg_task.json": [entry] },
    forked: true,
  });
}

async function startPair(name: string): Promise<{ leader: TestProcess; standby: TestProcess }> {
  const leader = await start(name);
  await leader.line("ready");
  const standby = await start(name);
  await standby.line("standby");
  return { leader, standby };
}

/** Inserts a task into a group of its own. */
const insert = async (table: string, input: string): Promise<string> => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO ${table} (input, "group") VALUES ($1, $1) RETURNING id`,
    [input],
  );
  return only(rows).id;
};

async function ended(table: string, id: string): Promise<string> {
  for (;;) {
    const { rows } = await client.query<{ state: string }>(`SELECT state FROM ${table} WHERE id = $1`, [id]);
    const { state } = only(rows);
    if (!["PLAN", "TAKE", "WORK"].includes(state)) return state;
  }
}

it("runs two clusters with one control database, and the loss of a leader concerns its own tables only", async () => {
  const [first, second] = [await startPair("first"), await startPair("second")];
  await client.query("CREATE TABLE effect (name text)");
  await client.query("SELECT pg_advisory_lock(1)");
  const wait = "SELECT pg_advisory_lock_shared(1); INSERT INTO effect VALUES";
  const interrupted = await insert("first", `${wait} ('first')`);
  const untouched = await insert("second", `${wait} ('second')`);
  for (const table of ["first", "second"])
    while ((await client.query(`SELECT FROM ${table} WHERE state = 'WORK'`)).rows.length === 0);
  await first.leader.end("SIGKILL");
  // The other cluster goes on while the first one changes its leader.
  assert.equal(await ended("second", await insert("second", "SELECT 1")), "DONE");
  await first.standby.line("ready");
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal(await ended("first", interrupted), "DONE");
  assert.equal(await ended("second", untouched), "DONE");
  assert.deepEqual((await client.query("SELECT name FROM effect ORDER BY name")).rows, [
    { name: "first" },
    { name: "second" },
  ]);
  const { rows } = await client.query(
    `SELECT application_name AS name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_work'`,
  );
  assert.equal(rows.length, 2, "one manager for each table");
  assert.deepEqual(second.standby.linesMatching("ready"), []);
  for (const each of [first.standby, second.standby, second.leader]) assert.equal((await each.end()).code, 0);
});

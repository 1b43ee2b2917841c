import assert from "node:assert/strict";
import { afterEach } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { only, Tasks, until } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const config = { url: database.url, "pg_task.sleep": 200, "pg_task.delete": false };

async function clear(): Promise<void> {
  await client.query("UPDATE task SET state = 'STOP' WHERE state IN ('PLAN', 'TAKE', 'WORK')");
  await pgTask.stop();
  await client.query("TRUNCATE task");
}

afterEach(clear);

/** Inserts tasks of the group `wide`, which comes before all others and may run them all at once. */
async function insertWide(count: number, input: string): Promise<void> {
  await client.query(
    `INSERT INTO task ("group", max, input) SELECT 'wide', 1000, $1 FROM generate_series(1, $2::integer)`,
    [input, count],
  );
}

const running = `SELECT FROM task WHERE state = 'WORK' AND "group" = 'wide'`;

/** Waits until exactly so many tasks of the wide group run. */
const wideRuns = (count: number) => until(client, running, (rows) => rows.length === count);

const countWide = async (): Promise<number> => (await client.query(running)).rowCount ?? 0;

test("a group that runs something leaves the last two sessions to groups that run nothing", async () => {
  await pgTask.start({ ...config, "pg_conf.max": 8 });
  await insertWide(20, "SELECT pg_sleep(60)");
  await wideRuns(6);
  // Two at once, and both again: the wide group does not take the sessions that they leave either.
  for (const round of ["first", "second"]) {
    const ids = await tasks.insert({ input: "SELECT 1", group: "a" }, { input: "SELECT 1", group: "b" });
    const rows = await tasks.ended(...ids);
    assert.deepEqual(
      rows.map(({ state }) => state),
      ["DONE", "DONE"],
      round,
    );
    assert.equal(await countWide(), 6);
  }
  // Tasks with a key or a gap cannot queue behind others.
  for (const column of [{ key: "k" }, { gap: "0.001 s" }]) {
    const { state } = await tasks.run("SELECT 1", { group: "special", ...column });
    assert.equal(state, "DONE");
  }
});

test("the second task of a group does not get a reserved session", async () => {
  await pgTask.start({ ...config, "pg_conf.max": 8 });
  await insertWide(20, "SELECT pg_sleep(60)");
  await wideRuns(6);
  const [first = "", second = ""] = await tasks.insert(
    { input: "SELECT pg_sleep(60)", group: "a", max: 5 },
    { input: "SELECT pg_sleep(60)", group: "a", max: 5 },
  );
  await tasks.running(first);
  // While both run, the one that is inserted later gets the last session.
  const third = await tasks.run("SELECT 1", { group: "b" });
  assert.equal(third.state, "DONE");
  assert.equal((await tasks.row(second)).start, null);
});

test("a group with many short tasks delays no other group by its whole backlog", async () => {
  for (const max of [4, 64]) {
    await pgTask.start({ ...config, "pg_conf.max": max });
    const input = "SELECT pg_sleep(0.002)";
    // The backlog inserts the other groups' tasks itself, so that it is as long however slow this test is.
    const others = `INSERT INTO task ("group", input) VALUES ('a', 'SELECT 1'), ('b', 'SELECT 1'), ('c', 'SELECT 1')`;
    await client.query(
      `INSERT INTO task ("group", max, input)
       SELECT 'wide', 1000, CASE WHEN i = 100 THEN $2 ELSE $1 END FROM generate_series(1, 4000) AS i`,
      [input, others],
    );
    const ended = `SELECT state::text FROM task WHERE "group" IN ('a', 'b', 'c') AND stop IS NOT NULL`;
    const rows = await until<{ state: string }>(client, ended, (found) => found.length === 3);
    assert.deepEqual(
      rows.map(({ state }) => state),
      ["DONE", "DONE", "DONE"],
    );
    const later = await tasks.value<number>(
      `SELECT count(*)::integer FROM task
       WHERE "group" = 'wide'
         AND (start IS NULL OR start > (SELECT max(start) FROM task WHERE "group" IN ('a', 'b', 'c')))`,
    );
    assert.ok(later > 1000, `${later} tasks started later, with ${max} sessions`);
    await clear();
  }
});

test("a reload changes the reserve, and 0 turns it off", async () => {
  await pgTask.start({ ...config, "pg_conf.max": 8, "pg_conf.reserve": 1 });
  await insertWide(20, "SELECT pg_sleep(60)");
  await wideRuns(7);
  await pgTask.reload({ ...config, "pg_conf.max": 8, "pg_conf.reserve": 0 });
  await wideRuns(8);
});

test("at most a quarter of the sessions is reserved, and none of three", async () => {
  for (const [max, wide] of [
    [3, 3],
    [4, 3],
  ] as const) {
    await pgTask.start({ ...config, "pg_conf.max": max, "pg_conf.reserve": 100 });
    await insertWide(10, "SELECT pg_sleep(60)");
    await wideRuns(wide);
    if (max === 4) assert.equal((await tasks.run("SELECT 1", { group: "a" })).state, "DONE");
    await clear();
  }
});

test("the reserve also holds for the limit pg_task.run", async () => {
  await pgTask.start({ ...config, "pg_task.run": 5 });
  await insertWide(10, "SELECT pg_sleep(60)");
  await wideRuns(4);
  assert.equal((await tasks.run("SELECT 1", { group: "a" })).state, "DONE");
  assert.equal(await countWide(), 4);
});

test("a group whose tasks come first waits for no more than the reserve", async () => {
  await pgTask.start({ ...config, "pg_conf.max": 8 });
  const [slow = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "reports" });
  await tasks.running(slow);
  // The first of the others inserts the urgent task, so that as many are left however slow this test is.
  const urgent = `INSERT INTO task ("group", max, input) VALUES ('reports', 5, 'SELECT 1')`;
  await client.query(
    `INSERT INTO task ("group", input)
     SELECT 'serial ' || i, CASE WHEN i = 1 THEN $1 ELSE 'SELECT pg_sleep(0.1)' END FROM generate_series(1, 400) AS i`,
    [urgent],
  );
  const done = `SELECT start FROM task WHERE "group" = 'reports' AND state = 'DONE'`;
  const { start } = only(await until<{ start: Date }>(client, done));
  const later = await tasks.value<number>(
    `SELECT count(*)::integer FROM task WHERE "group" LIKE 'serial %' AND (start IS NULL OR start > $1)`,
    [start],
  );
  assert.ok(later > 100, `${later} tasks started later`);
});

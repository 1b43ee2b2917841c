import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import { Tasks, waitForRun } from "../../support/tasks.js";

// That no key runs twice while processes are killed at random is tested in chaos/chaos.

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const tasks = await Tasks.create(client);
await client.query("CREATE TABLE effect (task bigint, key text, ended timestamptz DEFAULT clock_timestamp())");
/** Takes a lock of the key without waiting, so that it fails if another task of the key runs, and waits at the gate. */
const input = `DO $$
DECLARE
  name text := (SELECT key FROM task WHERE id = current_setting('pg_task.id')::bigint);
BEGIN
  IF NOT pg_try_advisory_xact_lock(2, hashtext(name)) THEN RAISE 'the key % runs twice', name; END IF;
  PERFORM pg_advisory_xact_lock_shared(1);
  INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint, name);
END $$`;

const close = () => gate.query("SELECT pg_advisory_lock(1)");
const open = () => gate.query("SELECT pg_advisory_unlock(1)");

const start = (until = "ready"): Promise<TestProcess> =>
  startProcess({ config: { url: database.url, "pg_conf.close": 60_000 }, until });

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program: TestProcess;

const effects = async (key: string): Promise<string[]> => {
  const { rows } = await client.query<{ task: string }>("SELECT task FROM effect WHERE key = $1 ORDER BY ended", [key]);
  return rows.map(({ task }) => task);
};

test("a manager that takes over starts no task whose key still runs in the manager that drains", async () => {
  await close();
  const first = await start();
  program = await start("standby");
  const old = await tasks.add(input, { key: "drain" });
  await waitForRun(client, old);
  first.child.kill("SIGTERM");
  await program.line("ready");
  const next = await tasks.add(input, { key: "drain", group: "next" });
  // The new manager serves the table: it runs another task of the same group, which comes later.
  assert.equal((await tasks.run("SELECT 1", { group: "next" })).state, "DONE");
  assert.deepEqual([(await tasks.row(old)).state, (await tasks.row(next)).state], ["WORK", "PLAN"]);
  await open();
  for (const { state, error } of await tasks.ended(old, next)) assert.deepEqual([state, error], ["DONE", null]);
  assert.deepEqual(await effects("drain"), [old, next]);
  await first.stopped();
});

test("after SIGKILL, an interrupted task is GONE if another one of its key waits, and runs again if none does", async () => {
  await close();
  const [old, alone] = [await tasks.add(input, { key: "kill" }), await tasks.add(input, { key: "alone" })];
  const runs = [await waitForRun(client, old), await waitForRun(client, alone)];
  const next = await tasks.add(input, { key: "kill" });
  await program.end("SIGKILL");
  // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
  for (const { pid } of runs) await client.query("SELECT pg_terminate_backend($1)", [pid]);
  program = await start();
  const { state, error } = await tasks.end(old);
  assert.deepEqual([state, error], ["GONE", `ERROR:  task ${next} with the same key takes its place`]);
  await waitForRun(client, next);
  await waitForRun(client, alone);
  await open();
  for (const row of await tasks.ended(next, alone)) assert.equal(row.state, "DONE");
  assert.deepEqual([await effects("kill"), await effects("alone")], [[next], [alone]]);
  await program.stop();
});

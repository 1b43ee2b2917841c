import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import { only } from "../../support/tasks.js";
import { waitForRow, waitForRun } from "../../support/waitFor.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const config = { url: database.url, "pg_conf.close": 60_000 };

await client.query("CREATE TABLE effect (task bigint, key text, began timestamptz, ended timestamptz)");
/** Takes a lock of the key without waiting, so that it fails if another task of the key runs, and waits at the gate. */
const input = `DO $$
DECLARE
  started timestamptz := clock_timestamp();
  name text := (SELECT key FROM task WHERE id = current_setting('pg_task.id')::bigint);
BEGIN
  IF NOT pg_try_advisory_xact_lock(2, hashtext(name)) THEN RAISE 'the key % runs twice', name; END IF;
  PERFORM pg_advisory_xact_lock_shared(1);
  INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint, name, started, clock_timestamp());
END $$`;

const close = () => gate.query("SELECT pg_advisory_lock(1)");
const open = () => gate.query("SELECT pg_advisory_unlock(1)");

async function insert(key: string, group: string): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, key, "group") VALUES ($1, $2, $3) RETURNING id`,
    [input, key, group],
  );
  return only(rows).id;
}

async function start(message = "ready"): Promise<TestProcess> {
  const program = await startProcess({ config });
  await program.line(message);
  return program;
}

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program: TestProcess;

const ended = async (id: string): Promise<{ state: string; error: string | null }> =>
  await waitForRow(
    client,
    "SELECT state::text, error FROM task WHERE id = $1 AND state NOT IN ('PLAN', 'TAKE', 'WORK')",
    [id],
  );

const effects = async (key: string): Promise<string[]> => {
  const { rows } = await client.query<{ task: string }>("SELECT task FROM effect WHERE key = $1 ORDER BY ended", [key]);
  return rows.map(({ task }) => task);
};

test("a manager that takes over starts no task whose key still runs in the manager that drains", async () => {
  await close();
  const first = await start();
  const second = await start("standby");
  const old = await insert("drain", "drain 1");
  await waitForRun(client, old);
  first.child.kill("SIGTERM");
  await second.line("ready");
  const next = await insert("drain", "drain 2");
  // The new manager serves the table: it runs another task of the same group, which comes later.
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group") VALUES ('SELECT 1', 'drain 2') RETURNING id`,
  );
  assert.equal((await ended(only(rows).id)).state, "DONE");
  const { rows: states } = await client.query("SELECT state::text FROM task WHERE id = ANY ($1) ORDER BY id", [
    [old, next],
  ]);
  assert.deepEqual(states, [{ state: "WORK" }, { state: "PLAN" }]);
  await open();
  assert.deepEqual(
    [await ended(old), await ended(next)],
    [
      { state: "DONE", error: null },
      { state: "DONE", error: null },
    ],
  );
  assert.deepEqual(await effects("drain"), [old, next]);
  assert.equal((await first.exit).code, 0);
  program = second;
});

test("after SIGKILL, an interrupted task is GONE if another one of its key waits, and runs again if none does", async () => {
  await close();
  const [old, alone] = [await insert("kill", "kill 1"), await insert("alone", "kill 2")];
  const runs = [await waitForRun(client, old), await waitForRun(client, alone)];
  const next = await insert("kill", "kill 3");
  await program.end("SIGKILL");
  // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
  for (const { pid } of runs) await client.query("SELECT pg_terminate_backend($1)", [pid]);
  program = await start();
  assert.deepEqual(await ended(old), {
    state: "GONE",
    error: `ERROR:  task ${next} with the same key takes its place`,
  });
  await waitForRun(client, next);
  await waitForRun(client, alone);
  await open();
  assert.deepEqual([(await ended(next)).state, (await ended(alone)).state], ["DONE", "DONE"]);
  assert.deepEqual([await effects("kill"), await effects("alone")], [[next], [alone]]);
});

test("when the process is killed again and again, no key runs twice and no key stays behind", async () => {
  const keys = Array.from({ length: 6 }, (_, index) => `chaos ${index}`);
  const producer = await database.connect();
  for (let round = 0; round < 3; round += 1) {
    for (const [index, key] of [...keys, ...keys].entries()) {
      await producer.query(
        `INSERT INTO task (input, key, "group", max) VALUES ($1, $2, $3, 10) ON CONFLICT DO NOTHING`,
        [input.replace("PERFORM pg_advisory_xact_lock_shared(1)", "PERFORM pg_sleep(0.02)"), key, `chaos ${index % 2}`],
      );
    }
    await program.end("SIGKILL");
    program = await start();
  }
  await waitForRow(
    client,
    "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE key LIKE 'chaos %' AND state IN ('PLAN', 'TAKE', 'WORK'))",
  );
  const { rows } = await client.query<{ key: string; fails: number; unproven: number }>(
    `SELECT t.key, count(*) FILTER (WHERE t.state = 'FAIL')::int AS fails,
       count(*) FILTER (WHERE (t.state = 'DONE') <> (SELECT count(*) = 1 FROM effect AS e WHERE e.task = t.id))::int AS unproven
     FROM task AS t WHERE t.key LIKE 'chaos %' GROUP BY t.key ORDER BY t.key`,
  );
  assert.deepEqual(
    rows,
    keys.map((key) => ({ key, fails: 0, unproven: 0 })),
  );
  assert.equal((await program.end()).code, 0);
});

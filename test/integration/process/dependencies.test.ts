import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import { only } from "../../support/tasks.js";
import { waitForRow } from "../../support/waitFor.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const config = { url: database.url, "pg_conf.close": 60_000, "pg_task.delete": false };

await client.query("CREATE TABLE effect (task bigint, at timestamptz)");
const effect = `INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint, clock_timestamp())`;

async function start(message = "ready"): Promise<TestProcess> {
  const started = await startProcess({ config });
  await started.line(message);
  return started;
}

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program: TestProcess;

/**
 * Inserts layers of tasks, in which each task waits for two tasks of the layer before. The groups let 20 tasks run at
 * once.
 */
async function insertLayers(layers: number, width: number): Promise<void> {
  await client.query("TRUNCATE task, effect RESTART IDENTITY");
  await client.query("BEGIN");
  for (let layer = 0; layer < layers; layer += 1) {
    await client.query(
      `INSERT INTO task (input, "group", max, after)
       SELECT $1, 'group ' || n % 20, 5, CASE WHEN $2 > 0 THEN ARRAY[($2 - 1) * $3 + n, ($2 - 1) * $3 + n % $3 + 1] END
       FROM generate_series(1, $3) AS n`,
      [effect, layer, width],
    );
  }
  await client.query("COMMIT");
}

/** Waits until all tasks have ended, and checks that each ran once and after the tasks it waited for. */
async function checkLayers(count: number): Promise<void> {
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK'))");
  const { rows } = await client.query<{ done: number; once: number; early: number; left: number }>(`
    SELECT (SELECT count(*)::integer FROM task WHERE state = 'DONE') AS done,
      (SELECT count(*)::integer FROM (SELECT FROM effect GROUP BY task HAVING count(*) = 1) AS e) AS once,
      (SELECT count(*)::integer FROM task AS t JOIN effect AS e ON e.task = t.id
        JOIN effect AS p ON p.task = ANY (t.after) WHERE p.at > e.at) AS early,
      (SELECT count(*)::integer FROM task_after) AS left`);
  assert.deepEqual(only(rows), { done: count, once: count, early: 0, left: 0 });
}

test("while one manager hands over to another, 1,000 tasks that wait for others run once and in order", async () => {
  const first = await start();
  const second = await start("standby");
  await insertLayers(10, 100);
  await waitForRow(client, "SELECT FROM task WHERE state = 'DONE' AND after IS NOT NULL LIMIT 1");
  first.child.kill("SIGTERM");
  await second.line("ready");
  await checkLayers(1000);
  assert.equal((await first.exit).code, 0);
  program = second;
});

test("while processes are killed again and again, tasks that wait for others run once and in order", async () => {
  await insertLayers(10, 100);
  for (const done of [50, 300, 700]) {
    await waitForRow(client, `SELECT FROM task WHERE state = 'DONE' HAVING count(*) >= ${done}`);
    await program.end("SIGKILL");
    program = await start();
  }
  await checkLayers(1000);
});

test("a predecessor whose end was written just before the process died releases its dependents", async () => {
  await client.query("TRUNCATE task, effect RESTART IDENTITY");
  await client.query(
    `INSERT INTO task (input, plan) VALUES ('SELECT 1', 'infinity'); INSERT INTO task (input, after) VALUES ('SELECT 2', '{1}')`,
  );
  await waitForRow(client, "SELECT FROM task WHERE id = 2 AND wait = 0");
  await program.end("SIGKILL");
  // This is what the row looks like after the completion and before the release.
  await client.query("UPDATE task SET state = 'DONE', start = now(), stop = now() WHERE id = 1");
  program = await start();
  await waitForRow(client, "SELECT FROM task WHERE id = 2 AND state = 'DONE'");
  assert.equal((await program.end()).code, 0);
});

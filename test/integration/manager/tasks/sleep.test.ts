import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { eventually, only } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, database, client, tasks } = await serve({
  "pg_task.sleep": 20,
  "pg_task.idle": 2,
  "pg_conf.log": "debug",
});

/** Runs a task, and waits until the executor threads have stopped, that is, until the manager is in deep sleep. */
async function fallAsleep(): Promise<void> {
  const from = pgTask.lines.length;
  await tasks.run("SELECT 1");
  await pgTask.logged((line) => line.msg === "executor threads stopped", from);
}

async function connections(): Promise<string[]> {
  const { rows } = await client.query<{ application_name: string }>(
    `SELECT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name <> 'test' ORDER BY 1`,
  );
  return rows.map((row) => row.application_name);
}

test("in deep sleep there is one connection for the supervisor and one for the manager", async () => {
  await fallAsleep();
  await eventually(
    client,
    `SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_task%' AND datname = current_database()`,
    (rows) => rows.length === 0,
  );
  assert.deepEqual(await connections(), ["pg_conf", "pg_work public task 20"]);
});

test("a task planned for later runs at its time and not before, from deep sleep", async () => {
  await fallAsleep();
  const from = pgTask.lines.length;
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, plan) VALUES ('SELECT 3', clock_timestamp() + interval '700 ms') RETURNING id",
  );
  const row = only(await tasks.ended(only(rows).id));
  assert.equal(row.state, "DONE");
  assert.ok((row.start ?? "") >= row.plan, `${row.start} is before ${row.plan}`);
  // Nothing else woke the manager: no executor thread was started before the one for this task.
  await pgTask.logged((line) => line.msg === "executor thread started", from);
});

test("a planned task whose row is locked hides no other plan in deep sleep", async () => {
  const holder = await database.connect();
  const [held = ""] = await tasks.insert({ input: "SELECT 7", plan: "2100-01-01" });
  await client.query("UPDATE task SET plan = clock_timestamp() + interval '250 ms' WHERE id = $1", [held]);
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [held]);
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, plan) VALUES ('SELECT 8', clock_timestamp() + interval '1 s') RETURNING id",
  );
  assert.equal(only(await tasks.ended(only(rows).id)).output, "8");
  assert.equal((await tasks.row(held)).state, "PLAN");
  await holder.query("COMMIT");
  assert.equal((await tasks.end(held)).output, "7");
});

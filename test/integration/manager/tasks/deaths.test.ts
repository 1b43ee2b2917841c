import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { eventually, only } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.sleep": 200, "pg_task.crash": 2 });

/** Terminates the connections with this application name. */
async function terminate(application: string): Promise<void> {
  const { rowCount } = await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE $1`,
    [application],
  );
  assert.equal(rowCount, 1);
}

/** Resolves when there is a connection with this application name that was opened after `before`. */
async function back(application: string, before: string): Promise<void> {
  await eventually(
    client,
    `SELECT FROM pg_stat_activity WHERE datname = current_database()
     AND application_name LIKE '${application}' AND backend_start > '${before}'`,
    (rows) => rows.length === 1,
  );
}

async function now(): Promise<string> {
  const { rows } = await client.query<{ now: string }>("SELECT clock_timestamp()::text AS now");
  return only(rows).now;
}

test("a task that ends its own session is tried up to pg_task.crash times, then FAIL", async () => {
  const [id = "", behind = ""] = await tasks.insert(
    { input: "SELECT pg_terminate_backend(pg_backend_pid())" },
    { input: "SELECT 'behind'" },
  );
  const row = await tasks.end(id);
  assert.deepEqual([row.state, row.crash], ["FAIL", 2]);
  assert.match(row.error ?? "", /^ERROR: {2}task took its own session down 2 times: \S/);
  assert.equal(row.owner, null);
  const line = await pgTask.line("crash limit reached, task failed");
  assert.deepEqual([line["id"], line["crash"]], [id, 2]);
  assert.equal((await tasks.end(behind)).output, "behind");
});

test("a task whose session is terminated from outside is rolled back and runs again", async () => {
  await client.query("CREATE TABLE effect (i int)");
  const [id = ""] = await tasks.insert({
    input:
      "INSERT INTO effect VALUES (1); SELECT pg_sleep(CASE WHEN crash = 0 THEN 60 ELSE 0 END) FROM task WHERE id = current_setting('pg_task.id')::bigint",
  });
  const running = await tasks.running(id);
  await eventually(
    client,
    `SELECT FROM pg_stat_activity WHERE pid = ${running.pid} AND wait_event = 'PgSleep'`,
    (rows) => rows.length === 1,
  );
  await client.query("SELECT pg_terminate_backend($1)", [running.pid]);
  const row = await tasks.end(id);
  assert.deepEqual([row.state, row.crash], ["DONE", 1]);
  assert.notEqual(row.pid, running.pid);
  const { rows } = await client.query("SELECT FROM effect");
  assert.equal(rows.length, 1);
});

test("when the manager's connection is terminated, running tasks and the manager go on", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const [id = ""] = await tasks.insert({
    input: "SELECT 'once' FROM pg_advisory_xact_lock(1)",
    group: "kept",
  });
  const running = await tasks.running(id);
  const before = await now();
  await terminate("pg_work%");
  await back("pg_work%", before);
  assert.equal((await tasks.run("SELECT 1", { group: "next" })).state, "DONE");
  const [behind = ""] = await tasks.insert({ input: "SELECT 2", group: "kept" });
  assert.equal((await tasks.row(id)).state, "WORK");
  await gate.query("SELECT pg_advisory_unlock(1)");
  const [row, after] = await tasks.ended(id, behind);
  assert.deepEqual([row?.state, row?.output, row?.pid, row?.crash], ["DONE", "once", running.pid, 0]);
  assert.equal(row?.take, running.take);
  assert.ok((row?.stop ?? "") <= (after?.start ?? ""), "the group's limit held");
});

test("a result that arrives while the manager has no connection is written later", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(2)");
  const [id = ""] = await tasks.insert({ input: "SELECT 'kept' FROM pg_advisory_xact_lock(2)" });
  await tasks.running(id);
  await client.query("BEGIN");
  await client.query(
    `SELECT pg_advisory_unlock_all(), pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg_work%'`,
  );
  await client.query("COMMIT");
  await gate.query("SELECT pg_advisory_unlock(2)");
  const row = await tasks.end(id);
  assert.deepEqual([row.state, row.output, row.crash], ["DONE", "kept", 0]);
});

test("when the supervisor's connection is terminated, it leads again and tasks run", async () => {
  const before = await now();
  const from = pgTask.lines.length;
  await terminate("pg_conf");
  await pgTask.logged((line) => line.msg === "leadership regained", from);
  await back("pg_conf", before);
  assert.equal((await tasks.run("SELECT 1")).state, "DONE");
});

test("when all connections are terminated at once, work goes on and no task is blamed", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(3)");
  const [id = ""] = await tasks.insert({ input: "SELECT 'again' FROM pg_advisory_xact_lock(3)" });
  const first = await tasks.running(id);
  const { rowCount } = await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg\\_%'`,
  );
  assert.ok((rowCount ?? 0) >= 3);
  assert.equal((await tasks.run("SELECT 1", { group: "other" })).state, "DONE");
  await gate.query("SELECT pg_advisory_unlock(3)");
  const row = await tasks.end(id);
  assert.deepEqual([row.state, row.output, row.crash], ["DONE", "again", 0]);
  assert.notEqual(row.take, first.take);
});

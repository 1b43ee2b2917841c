import assert from "node:assert/strict";
import { ownerSql } from "../../../../src/shared/postgres/backendIdentity.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { statesOf, eventually, only, Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);

/** Owns tasks that another process seems to have left running. Their owner is the backend of this connection. */
const foreign = await database.connect();
await foreign.query(
  `INSERT INTO task (input, state, owner, pid, "group")
   SELECT 'SELECT ' || i, 'WORK', ${ownerSql("a")}, a.pid, 'left'
   FROM generate_series(1, 3) AS i, pg_stat_activity AS a WHERE a.pid = pg_backend_pid()`,
);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.run": 2 });

/** Resolves when the manager has checked the table once more. */
async function aTurnLater(): Promise<void> {
  const { rows } = await client.query<{ now: string }>("SELECT clock_timestamp()::text AS now");
  await eventually(
    client,
    `SELECT FROM pg_stat_activity WHERE datname = current_database()
     AND application_name LIKE 'pg_work%' AND query_start > '${only(rows).now}'`,
    (found) => found.length === 1,
  );
}

const restarts = (): unknown[] => pgTask.lines.filter((line) => line.msg === "manager unavailable, retrying");

test("tasks that another backend still runs count, and are left alone until they are orphans", async () => {
  const [behind = ""] = await tasks.insert({ input: "SELECT 4", group: "left" });
  const [other = ""] = await tasks.insert({ input: "SELECT 5", group: "other" });
  await aTurnLater();
  // At most two tasks of the table may run. The three tasks of the other backend run, so none starts.
  const waiting = await Promise.all([behind, other].map((id) => tasks.row(id)));
  assert.deepEqual(statesOf(waiting), ["PLAN", "PLAN"]);
  assert.deepEqual(restarts(), []);
  await foreign.query("SELECT pg_terminate_backend(pg_backend_pid())").catch(() => {});
  const rows = await tasks.ended("1", "2", "3", behind, other);
  assert.deepEqual(
    rows.map((row) => [row.state, row.output, row.crash]),
    ["1", "2", "3", "4", "5"].map((output) => ["DONE", output, 0]),
  );
  await pgTask.logged((line) => line.msg === "orphaned tasks rescued");
});

test("a manager with orphans keeps its own lock while the table is locked", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const [id = ""] = await tasks.insert({ input: "SELECT 'again' FROM pg_advisory_xact_lock(1)" });
  const running = await tasks.running(id);
  const from = pgTask.lines.length;
  await client.query("BEGIN");
  await client.query("LOCK TABLE task IN ACCESS EXCLUSIVE MODE");
  await gate.query("SELECT pg_terminate_backend($1)", [running.pid]);
  await pgTask.logged((line) => line.msg === "session lost", from);
  /** Query for the manager's backend that waits for the table, and the time since which it has been waiting. */
  const waits = `SELECT pid, query_start::text FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'pg_work%' AND wait_event_type = 'Lock'`;
  type Wait = { readonly pid: number; readonly query_start: string };
  const first = only(await eventually<Wait>(gate, waits, (rows) => rows.length === 1));
  const second = await eventually<Wait>(
    gate,
    waits,
    (rows) => rows.length === 1 && rows[0]?.query_start !== first.query_start,
  );
  await client.query("COMMIT");
  assert.equal(only(second).pid, first.pid);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const row = await tasks.end(id);
  assert.deepEqual([row.state, row.output], ["DONE", "again"]);
  assert.deepEqual(restarts(), []);
});

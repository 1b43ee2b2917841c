import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { eventually, insertTask, rowsOf, valueOf, waitForRow, waitForState } from "../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const { database: data, user } = database.target;
const entries = ["task", "other"].map((table) => ({ data, user, table }));
const configuration = {
  url: database.url,
  "pg_task.sleep": 10,
  "pg_task.idle": 1,
  "pg_conf.grace": 1000,
  "pg_task.json": entries,
};

interface Session {
  readonly name: string;
}

const managersSql = `SELECT application_name AS name FROM pg_stat_activity
  WHERE datname = current_database() AND application_name LIKE 'pg\\_work %'`;
/** The backend that watches the tables, if it holds the locks of both and no manager is connected. */
const watchSql = `SELECT min(pid) AS pid FROM pg_stat_activity AS a
  WHERE datname = current_database() AND application_name LIKE 'pg\\_work %'
  HAVING count(*) = 1 AND min(application_name) = 'pg_work sleeping'
    AND 2 = (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.manager}::bigint::oid
      AND pid = min(a.pid))`;

/** Waits until all tables sleep. Returns the pid of the backend that watches them. */
async function allAsleep(): Promise<number> {
  const { pid } = await waitForRow<{ readonly pid: number }>(client, watchSql);
  return pid;
}

test("managers with nothing to do end, one connection watches their tables, and a task wakes only its own", async () => {
  await pgTask.start(configuration);
  await allAsleep();
  while (pgTask.entries.some(({ state }) => state !== "sleeping")) await pause(10);
  await client.query("BEGIN");
  const id = await insertTask(client, "SELECT pg_sleep(0.2), 42 AS answer");
  await client.query("COMMIT");
  await waitForRow(client, "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg\\_work public task %'");
  const names = (await rowsOf<Session>(client, managersSql)).map(({ name }) => name);
  assert.equal(names.filter((name) => name.startsWith("pg_work public other")).length, 0);
  const { output } = await waitForState(client, id, "DONE");
  assert.match(output ?? "", /42/);
  await allAsleep();
});

test("a planned task wakes its table if its plan is moved to now", async () => {
  await allAsleep();
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 hour') RETURNING id",
  );
  const id = rows[0]?.id ?? "";
  await allAsleep();
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  await waitForState(client, id, "DONE");
});

test("tasks that are inserted while the watching connection is lost are found", async () => {
  for (let round = 0; round < 3; round += 1) {
    const pid = await allAsleep();
    const id = await insertTask(client, "SELECT 1");
    await client.query("SELECT pg_terminate_backend($1)", [pid]);
    await waitForState(client, id, "DONE");
  }
});

test("no task is missed that is committed while managers fall asleep", async () => {
  let ids: string[] = [];
  for (let round = 0; round < 60; round += 1) {
    await pause(Math.random() * 250);
    ids = [...ids, await insertTask(client, "SELECT 1")];
  }
  await eventually(client, "SELECT FROM task WHERE state <> 'DONE'", (rows) => rows.length === 0);
  assert.equal(await valueOf(client, "SELECT count(*)::integer FROM task WHERE id = ANY ($1::bigint[])", [ids]), 60);
});

test("what was dropped while a table slept is created again when a task needs it", async () => {
  await allAsleep();
  await client.query("DROP FUNCTION task_reset()");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await client.query("SELECT 'task_reset()'::regprocedure");
});

test("the manager of a table that was renamed while it slept creates no other one in its place", async () => {
  await allAsleep();
  const from = pgTask.lines.length;
  await client.query("BEGIN");
  const id = await insertTask(client, "SELECT 1");
  await client.query("ALTER TABLE task RENAME TO renamed");
  await client.query("COMMIT");
  await pgTask.logged(({ code }) => code === "SCHEMA_MOVED", from);
  await client.query("ALTER TABLE renamed RENAME TO task");
  await waitForState(client, id, "DONE");
});

test("changed parameters reach a sleeping table", async () => {
  await allAsleep();
  await pgTask.reload({ ...configuration, "pg_task.group": "changed" });
  await waitForRow(
    client,
    `SELECT FROM pg_attrdef WHERE adrelid = 'other'::regclass AND pg_get_expr(adbin, adrelid) LIKE '%changed%'`,
  );
  await pgTask.reload(configuration);
  await waitForRow(
    client,
    `SELECT WHERE NOT EXISTS (SELECT FROM pg_attrdef WHERE pg_get_expr(adbin, adrelid) LIKE '%changed%')`,
  );
  await allAsleep();
});

test("an entry that is removed while its table sleeps leaves the table to another pg-task", async () => {
  await allAsleep();
  await pgTask.reload({ ...configuration, "pg_task.json": entries.slice(0, 1) });
  const other = new PgTask();
  await other.start({ ...configuration, "pg_conf.name": "second", "pg_task.json": entries.slice(1) });
  await client.query("INSERT INTO other (input) VALUES ('SELECT 1')");
  await waitForRow(client, "SELECT FROM other WHERE state = 'DONE'");
  await other.stop();
});

test("pg-task stops while its tables sleep, and leaves no connection and no lock", async () => {
  const isOnlyWatch = (rows: readonly Session[]): boolean => rows.length === 1 && rows[0]?.name === "pg_work sleeping";
  await eventually<Session>(client, managersSql, isOnlyWatch);
  await pgTask.stop();
  // A server process ends shortly after its connection was closed.
  await eventually(client, managersSql, (rows) => rows.length === 0);
});

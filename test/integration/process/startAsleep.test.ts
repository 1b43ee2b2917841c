import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { connectManager } from "../../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../src/manager/schema/taskTable.js";
import { explainConfiguration } from "../../../src/shared/config/loadConfiguration.js";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import type { LogLine } from "../../support/logLines.js";
import { PgTask } from "../../support/pgTask.js";
import { eventually, insertTask, valueOf, waitForRow, waitForState } from "../../support/tasks.js";
import { silentLog } from "../../support/taskTables.js";

const pgTask = new PgTask();
const other = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();
const { database: data, user } = database.target;
const tables = ["task", ...Array.from({ length: 39 }, (_, each) => `tenant_${each}`)];
const configuration = {
  url: database.url,
  "pg_task.sleep": 10,
  "pg_conf.grace": 1000,
  "pg_conf.log": "debug",
  "pg_task.json": tables.map((table) => ({ data, user, table })),
};
const { configuration: loaded } = await explainConfiguration({ content: configuration, cwd: "/", env: {} });
const [manager] = await Promise.all(loaded.entries.slice(0, 1).map((entry) => connectManager(entry)));
assert.ok(manager !== undefined);
for (const entry of loaded.entries) await ensureTable(manager, taskTable(entry.schema, entry.table), entry, silentLog);
await manager.end();

const managersSql =
  "SELECT application_name AS name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg\\_work %' ORDER BY 1";
const locksSql = `SELECT count(*)::integer FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.manager}::bigint::oid
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

const served = (from = 0): string[] =>
  pgTask.lines.slice(from).flatMap(({ msg, table }) => (msg === "serving table" ? String(table) : []));

const isWaiting = ({ msg, table }: LogLine): boolean =>
  msg === "another manager holds the lock of the table, waiting" && table === "public.tenant_7";

async function allAsleep(): Promise<void> {
  while (pgTask.entries.some(({ state }) => state !== "sleeping")) await pause(10);
  await eventually<{ name: string }>(client, managersSql, (rows) => rows.length === 1);
}

test("only tables with something to do, or that were changed, get a manager at the start", async () => {
  const late = await insertTask(client, "SELECT 1");
  await client.query("INSERT INTO tenant_0 (input, plan) VALUES ('SELECT 1', now() + interval '1 day')");
  await client.query("ALTER TABLE tenant_1 ALTER COLUMN \"group\" SET DEFAULT 'mine'");
  await client.query('ALTER TABLE tenant_2 ALTER COLUMN "group" DROP DEFAULT');
  await pgTask.start(configuration);
  await waitForState(client, late, "DONE");
  await allAsleep();
  assert.deepEqual(served().toSorted(), ["public.task", "public.tenant_1", "public.tenant_2"]);
  assert.deepEqual(
    pgTask.lines.flatMap(({ msg, table }) => (msg === "column defaults changed" ? String(table) : [])),
    ["public.tenant_2"],
  );
  assert.equal(await valueOf(client, locksSql), tables.length);
});

test("a task wakes only its own table, also after the connection that watches it was lost", async () => {
  for (const table of ["tenant_5", "tenant_6"]) {
    await allAsleep();
    const from = pgTask.lines.length;
    await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT 1')`);
    await waitForRow(client, `SELECT FROM ${table} WHERE state = 'DONE'`);
    assert.deepEqual(served(from), ["public." + table]);
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_work sleeping'",
    );
  }
});

test("a reload wakes only tables in which it changes something", async () => {
  await allAsleep();
  const from = pgTask.lines.length;
  const [first, ...rest] = configuration["pg_task.json"];
  const changed = {
    ...configuration,
    "pg_conf.log": "info",
    "pg_task.json": [{ ...first, "pg_task.group": "changed" }, ...rest],
  };
  await pgTask.reload(changed);
  await pgTask.logged(({ msg, table }) => msg === "column defaults changed" && table === "public.task", from);
  await allAsleep();
  assert.equal(pgTask.lines.slice(from).filter(({ msg }) => msg === "serving table").length, 1);
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  assert.equal(await valueOf(client, 'SELECT "group" FROM task WHERE id = $1', [id]), "changed");
  await allAsleep();
});

test("tables that are woken together take turns", async () => {
  await allAsleep();
  await pgTask.reload({ ...configuration, "pg_conf.fetch": 2 });
  const woken = Array.from({ length: 12 }, (_, each) => `tenant_${each + 10}`);
  await client.query(
    `BEGIN; ${woken.map((table) => `INSERT INTO ${table} (input) VALUES ('SELECT 1')`).join("; ")}; COMMIT`,
  );
  for (const table of woken) await waitForRow(client, `SELECT FROM ${table} WHERE state = 'DONE'`);
  await allAsleep();
});

test("of two pg-tasks that serve the same table, one waits", async () => {
  await allAsleep();
  await pgTask.stop();
  // A server process ends, and releases its locks, shortly after its connection was closed.
  await eventually(client, managersSql, (rows) => rows.length === 0);
  await other.start({
    ...configuration,
    "pg_conf.name": "second",
    "pg_task.json": [{ data, user, table: "tenant_7" }],
  });
  // Nobody holds the lock for a moment when a manager falls asleep.
  while (other.entries.some(({ state }) => state !== "sleeping")) await pause(10);
  // The other one is woken to say that it is there, and may find that its table was taken meanwhile.
  const begun = [pgTask, other].map((each) => ({ each, from: each.lines.length }));
  await pgTask.start(configuration);
  await Promise.race(begun.map(({ each, from }) => each.logged(isWaiting, from)));
  await other.stop();
  await client.query("INSERT INTO tenant_7 (input) VALUES ('SELECT 1')");
  await waitForRow(client, "SELECT FROM tenant_7 WHERE state = 'DONE'");
});

test("a stop during the start leaves no connection and no lock", async () => {
  await pgTask.stop();
  for (const ms of [0, 50, 150, 300]) {
    pgTask.launch(configuration);
    await pause(ms);
    await pgTask.stop();
    await eventually(client, managersSql, (rows) => rows.length === 0);
    await eventually<{ count: number }>(client, locksSql, ([found]) => found?.count === 0);
  }
});

import assert from "node:assert/strict";
import { after } from "node:test";
import { eventually } from "../support/changes.js";
import { createDatabase, onServer } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks, type NewTask, type TaskRow } from "../support/tasks.js";
import { tracesSetup, traces } from "../support/traces.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const role = `role_${database.target.database}`;
await client.query(`${tracesSetup}; CREATE ROLE ${role}`);
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** Connection string to the test's own database. */
const remote = `dbname=${database.target.database}`;
const other = `${remote} connect_timeout=9`;

/** Inserts remote tasks in one transaction, so that all become due at once. */
async function together(...several: readonly NewTask[]): Promise<string[]> {
  await client.query("BEGIN");
  const ids = await tasks.insert(...several.map((task) => ({ remote, ...task })));
  await client.query("COMMIT");
  return ids;
}

const times = (count: number, task: NewTask): NewTask[] => Array.from({ length: count }, () => task);

/** Returns the number of runs in each backend, ordered by the first start in the backend. */
function runsByPid(rows: readonly TaskRow[]): number[] {
  const counts = new Map<number | null, number>();
  const started = rows.toSorted((a, b) => ((a.start ?? "") < (b.start ?? "") ? -1 : 1));
  for (const { pid } of started) counts.set(pid, (counts.get(pid) ?? 0) + 1);
  return [...counts.values()];
}

async function gone(pid: number | null): Promise<void> {
  await eventually(client, `SELECT FROM pg_stat_activity WHERE pid = ${pid}`, (rows) => rows.length === 0);
}

test("§7 a remote task's row holds the pid of its own backend", async () => {
  const own = "SELECT pid = pg_backend_pid() FROM task WHERE id = current_setting('pg_task.id')::bigint";
  const ids = await together(
    ...times(10, { input: own, group: "once" }),
    ...times(10, { input: own, group: "kept", count: 4 }),
  );
  for (const { output, error } of await tasks.ended(...ids)) {
    assert.deepEqual([output, error], ["t", null]);
  }
});

test("§6 with count 5, ten remote tasks of a group run in two sessions, five in each", async () => {
  const ids = await together(...times(10, { input: "SELECT pg_backend_pid()", group: "fives", count: 5 }));
  const rows = await tasks.ended(...ids);
  assert.deepEqual(runsByPid(rows), [5, 5]);
  for (const { pid, output } of rows) assert.equal(output, String(pid));
});

test("§6 a remote session closes once it has run its count", async () => {
  const ids = await together(...times(2, { input: "SELECT 1", group: "goes", count: 2 }));
  const rows = await tasks.ended(...ids);
  assert.deepEqual(runsByPid(rows), [2]);
  await gone(rows[0]?.pid ?? null);
});

test("§6 with live, a remote session runs the tasks of its group that start within that time", async () => {
  const task = { input: "SELECT pg_sleep(0.01)", group: "long", live: "1 hour" };
  assert.deepEqual(runsByPid(await tasks.ended(...(await together(...times(6, task))))), [6]);
});

test("§6 live counts from a remote session's first task", async () => {
  const task = { input: "SELECT pg_sleep(1.1)", group: "short", live: "2 sec" };
  assert.deepEqual(runsByPid(await tasks.ended(...(await together(...times(3, task))))), [2, 1]);
});

test("§6 with count and live, a remote session closes when the first of the two is reached", async () => {
  const byCount = { input: "SELECT 1", group: "c", count: 2, live: "1 hour" };
  assert.deepEqual(runsByPid(await tasks.ended(...(await together(...times(4, byCount))))), [2, 2]);
  const byLive = { input: "SELECT pg_sleep(0.1)", group: "l", count: 3, live: "50 ms" };
  const rows = await tasks.ended(...(await together(...times(3, byLive))));
  assert.deepEqual(runsByPid(rows), [1, 1, 1]);
});

test("§6 the next remote task's own values decide whether the session may take it", async () => {
  const ids = await together(...[9, 9, 2, 9].map((count) => ({ input: "SELECT 1", group: "mixed", count })));
  const [first, second, third, fourth] = (await tasks.ended(...ids)).map((row) => row.pid);
  assert.equal(second, first);
  assert.notEqual(third, first);
  assert.equal(fourth, third);
});

test("§6 with count 0 and live 0 each remote task has a session of its own", async () => {
  const rows = await tasks.ended(...(await together(...times(3, { input: "SELECT 1", group: "own" }))));
  assert.deepEqual(runsByPid(rows), [1, 1, 1]);
});

test("§6 a remote session closes when no task of its group is due", async () => {
  const task = { group: "alone", count: 100, live: "1 hour", remote };
  const { pid } = await tasks.run("SELECT 1", task);
  await gone(pid);
  assert.notEqual((await tasks.run("SELECT 1", task)).pid, pid);
});

test("§6 a remote session dedicated to one group and connection string takes no task of another", async () => {
  const sleep = { input: "SELECT pg_sleep(0.05)", count: 9 };
  const ids = await together(
    ...times(3, { ...sleep, group: "k" }),
    ...times(3, { ...sleep, group: "o" }),
    ...times(3, { ...sleep, group: "k", remote: other }),
    ...times(3, { ...sleep, group: "k", remote: null }),
  );
  const rows = await tasks.ended(...ids);
  const pids = [0, 3, 6, 9].map((from) => rows.slice(from, from + 3).map(({ pid }) => pid));
  for (const some of pids) assert.equal(new Set(some).size, 1);
  assert.equal(new Set(pids.flat()).size, 4);
});

for (const [what, { leave, look, none }] of Object.entries(traces(role))) {
  test(`§6 a remote session's next task finds nothing left of ${what}`, async () => {
    const ids = await together({ input: leave, group: what, count: 2 }, { input: look, group: what, count: 2 });
    const [left, looked] = await tasks.ended(...ids);
    assert.equal(looked?.pid, left?.pid);
    assert.equal(left?.state, "DONE", left?.error ?? "");
    assert.equal(looked?.output, none, looked?.error ?? "");
  });
}

test("§6 with save, a remote session's next task finds temporary tables, settings and prepared statements", async () => {
  const input =
    "SELECT value FROM kept; SELECT current_setting('my.kept'); EXECUTE kept; SELECT current_setting('work_mem')";
  const make =
    "CREATE TEMP TABLE kept AS SELECT 'a' AS value; SET my.kept = 'b'; PREPARE kept AS SELECT 'c'; SET work_mem = '12345kB'";
  const saved = { group: "save", count: 2, save: true };
  const ids = await together({ input: make, ...saved }, { input, ...saved }, { input, ...saved });
  const [, second, third] = await tasks.ended(...ids);
  assert.equal(second?.output, "a\nb\nc\n12345kB", second?.error ?? "");
  // The third task runs in another session, which lacks what the first one left.
  assert.equal(third?.state, "FAIL");
});

test("§6 a timeout does not leak into a remote session's next task", async () => {
  for (const save of [false, true]) {
    const group = `timeout ${save}`;
    const ids = await together(
      { input: "SELECT 1", group, count: 2, save, timeout: "10 sec" },
      { input: "SHOW statement_timeout", group, count: 2, save },
    );
    const [first, second] = await tasks.ended(...ids);
    assert.equal(second?.pid, first?.pid);
    assert.equal(second?.output, "0");
  }
});

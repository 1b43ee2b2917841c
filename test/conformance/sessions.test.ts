import assert from "node:assert/strict";
import { after } from "node:test";
import { eventually } from "../support/changes.js";
import { createDatabase, onServer } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { only, Tasks, type NewTask, type TaskRow } from "../support/tasks.js";
import { tracesSetup, traces } from "../support/traces.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const role = `role_${database.target.database}`;
await client.query(`${tracesSetup}; CREATE ROLE ${role}`);
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** Inserts tasks in one transaction, so that all become due at once. */
async function together(count: number, task: NewTask): Promise<string[]> {
  await client.query("BEGIN");
  const ids = await tasks.insert(...Array.from({ length: count }, () => task));
  await client.query("COMMIT");
  return ids;
}

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

test("§6 with count 5, ten tasks of a group run in two sessions, five in each", async () => {
  const ids = await together(10, { input: "SELECT 1", group: "fives", count: 5 });
  assert.deepEqual(runsByPid(await tasks.ended(...ids)), [5, 5]);
});

test("§6 a session closes once it has run its count", async () => {
  const ids = await together(2, { input: "SELECT 1", group: "goes", count: 2 });
  const rows = await tasks.ended(...ids);
  assert.deepEqual(runsByPid(rows), [2]);
  await gone(rows[0]?.pid ?? null);
});

test("§6 with live, a session runs the tasks of its group that start within that time", async () => {
  const ids = await together(6, { input: "SELECT pg_sleep(0.01)", group: "long", live: "1 hour" });
  assert.deepEqual(runsByPid(await tasks.ended(...ids)), [6]);
});

test("§6 live counts from the session's first task", async () => {
  const ids = await together(3, { input: "SELECT pg_sleep(1.1)", group: "short", live: "2 sec" });
  assert.deepEqual(runsByPid(await tasks.ended(...ids)), [2, 1]);
});

test("§6 with count and live, the session closes when the first of the two is reached", async () => {
  const byCount = await together(4, { input: "SELECT 1", group: "c", count: 2, live: "1 hour" });
  assert.deepEqual(runsByPid(await tasks.ended(...byCount)), [2, 2]);
  const byLive = await together(3, {
    input: "SELECT pg_sleep(0.1)",
    group: "l",
    count: 3,
    live: "50 ms",
  });
  assert.deepEqual(runsByPid(await tasks.ended(...byLive)), [1, 1, 1]);
});

test("§6 the next task's own values decide whether this session may take it", async () => {
  await client.query("BEGIN");
  const ids = await tasks.insert(
    { input: "SELECT 1", group: "mixed", count: 9 },
    { input: "SELECT 2", group: "mixed", count: 9 },
    { input: "SELECT 3", group: "mixed", count: 2 },
    { input: "SELECT 4", group: "mixed", count: 9 },
  );
  await client.query("COMMIT");
  const rows = await tasks.ended(...ids);
  const [first, second, third, fourth] = rows.map((row) => row.pid);
  assert.equal(second, first);
  assert.notEqual(third, first);
  assert.equal(fourth, third);
});

test("§6 a session closes when no task of its group is due", async () => {
  const { pid } = await tasks.run("SELECT 1", { group: "alone", count: 100, live: "1 hour" });
  await gone(pid);
  const again = await tasks.run("SELECT 1", { group: "alone", count: 100, live: "1 hour" });
  assert.notEqual(again.pid, pid);
});

test("§6 a session dedicated to one group takes no task of another", async () => {
  await client.query("BEGIN");
  const kept = await tasks.insert(
    ...Array.from({ length: 3 }, () => ({ input: "SELECT pg_sleep(0.05)", group: "k", count: 9 })),
  );
  const others = await tasks.insert(
    ...Array.from({ length: 3 }, () => ({ input: "SELECT pg_sleep(0.05)", group: "o", count: 9 })),
  );
  await client.query("COMMIT");
  const pids = new Set((await tasks.ended(...kept)).map(({ pid }) => pid));
  for (const { pid } of await tasks.ended(...others)) assert.ok(!pids.has(pid));
  assert.equal(pids.size, 1);
});

for (const [what, { leave, look, none }] of Object.entries(traces(role))) {
  test(`§6 a session's next task finds nothing left of ${what}`, async () => {
    await client.query("BEGIN");
    const ids = await tasks.insert({ input: leave, group: what, count: 2 }, { input: look, group: what, count: 2 });
    await client.query("COMMIT");
    const [left, looked] = await tasks.ended(...ids);
    assert.equal(looked?.pid, left?.pid);
    assert.equal(left?.state, "DONE", left?.error ?? "");
    assert.equal(looked?.output, none, looked?.error ?? "");
  });

  test(`§6 with count 0 and live 0 a task finds nothing left of ${what}`, async () => {
    assert.equal((await tasks.run(leave, { group: what })).state, "DONE");
    assert.equal((await tasks.run(look, { group: what })).output, none);
  });
}

test("§6 with save, the session's next task finds temporary tables, settings and prepared statements", async () => {
  const input =
    "SELECT value FROM kept; SELECT current_setting('my.kept'); EXECUTE kept; SELECT current_setting('work_mem')";
  const make =
    "CREATE TEMP TABLE kept AS SELECT 'a' AS value; SET my.kept = 'b'; PREPARE kept AS SELECT 'c'; SET work_mem = '12345kB'";
  await client.query("BEGIN");
  const ids = await tasks.insert(
    { input: make, group: "save", count: 2, save: true },
    { input, group: "save", count: 2, save: true },
    { input, group: "save", count: 2, save: true },
  );
  await client.query("COMMIT");
  const [, second, third] = await tasks.ended(...ids);
  assert.equal(second?.output, "a\nb\nc\n12345kB");
  // The third task runs in another session, which lacks what the first one left.
  assert.equal(third?.state, "FAIL");
});

test("§6 save keeps nothing for a task of another group", async () => {
  const make = "SET my.kept = 'b'; SELECT pg_backend_pid()";
  await tasks.run(make, { group: "save here", count: 2, live: "1 hour", save: true });
  const look = "SELECT coalesce(current_setting('my.kept', true), '') = ''";
  assert.equal((await tasks.run(look, { group: "elsewhere" })).output, "t");
  assert.equal((await tasks.run(look, { group: "save here", count: 2, save: true })).output, "t");
});

test("§6 save without count and live keeps nothing", async () => {
  await tasks.run("SET my.kept = 'b'", { group: "save alone", save: true });
  const look = "SELECT coalesce(current_setting('my.kept', true), '') = ''";
  assert.equal((await tasks.run(look, { group: "save alone", save: true })).output, "t");
});

test("§6 a timeout does not leak into the session's next task", async () => {
  await client.query("BEGIN");
  const ids = await tasks.insert(
    ...[false, true].flatMap((save) => [
      { input: "SELECT 1", group: `timeout ${save}`, count: 2, save, timeout: "1 sec" },
      { input: "SELECT pg_sleep(1.2); SHOW statement_timeout", group: `timeout ${save}`, count: 2, save },
    ]),
  );
  await client.query("COMMIT");
  const rows = await tasks.ended(...ids);
  for (const [first, second] of [rows.slice(0, 2), rows.slice(2)]) {
    assert.equal(second?.pid, first?.pid);
    assert.equal(second?.output, "\n0");
  }
});

test("§6 the session is reset before the task's row shows its end", async () => {
  await tasks.run("SELECT pg_advisory_lock(4712)");
  const { rows } = await client.query<{ free: boolean }>("SELECT pg_try_advisory_lock(4712) AS free");
  assert.equal(only(rows).free, true);
});

import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { only, rowsOf, until } from "../support/tasks.js";

const { pgTask, client, tasks } = await serve(
  { "pg_task.sleep": 200, "pg_task.delete": false },
  "CREATE TABLE broken (since timestamptz); INSERT INTO broken VALUES (now())",
);

/** Fails as long as the table `broken` has a row. */
const input = "SELECT 1 / (CASE WHEN EXISTS (SELECT FROM broken) THEN 0 ELSE 1 END)";
const message = "suspended after failures in a row";

interface Waiting {
  readonly id: string;
  readonly plan: string;
  readonly failures: number | null;
  readonly due: string | null;
}

const waiting = (key: string, condition = "true"): Promise<Waiting> =>
  until<Waiting>(
    client,
    `SELECT id::text, plan::text, failures, due::text FROM task WHERE key = '${key}' AND state = 'PLAN' AND ${condition}`,
    (rows) => rows.length === 1,
  ).then(only);

test("a schedule pauses after so many failures in a row, and goes on when it is resumed", async () => {
  await client.query(
    `INSERT INTO task (input, key, repeat, suspend, "group") VALUES ($1, 'nightly', '20 ms', 3, 'nightly')`,
    [input],
  );
  const paused = await waiting("nightly", "plan = 'infinity'");
  assert.equal(paused.failures, 3);
  assert.notEqual(paused.due, null);
  const line = await pgTask.logged(({ msg, key }) => msg === message && key === "nightly");
  assert.deepEqual([line.level, line["failures"]], ["warn", 3]);
  const states = await rowsOf<{ state: string }>(client, "SELECT state FROM task WHERE key = 'nightly' ORDER BY id");
  assert.deepEqual(
    states.map(({ state }) => state),
    ["FAIL", "FAIL", "FAIL", "PLAN"],
  );
  // Run by hand, it is tried once, and suspended again at once.
  await client.query("SELECT task_run('nightly')");
  const again = await waiting("nightly", `plan = 'infinity' AND id <> ${paused.id}`);
  assert.equal(again.failures, 4);
  // Resumed, it has all its failures again.
  await client.query("SELECT task_resume('nightly')");
  const third = await waiting("nightly", `plan = 'infinity' AND id > ${again.id}`);
  assert.equal(third.failures, 3);
  await client.query("DELETE FROM broken");
  await client.query("SELECT task_resume('nightly')");
  await waiting("nightly", `failures IS NULL AND id > ${third.id} + 1`);
  await client.query("SELECT task_unschedule('nightly'); INSERT INTO broken VALUES (now())");
});

test("one success, a retry that succeeds, and a run that did not take place do not count as failures", async () => {
  await client.query("CREATE SEQUENCE odd");
  // Each second run fails.
  await client.query(
    `INSERT INTO task (input, key, repeat, suspend) VALUES ('SELECT 1 / (nextval(''odd'') % 2)', 'odd', '10 ms', 2)`,
  );
  await until(client, "SELECT FROM task WHERE key = 'odd' AND state = 'FAIL'", (rows) => rows.length > 3);
  await client.query("SELECT task_unschedule('odd')");
  assert.equal(await tasks.value("SELECT max(failures) FROM task WHERE key = 'odd'"), 1);
  // The first try of each run fails.
  await client.query("ALTER SEQUENCE odd RESTART WITH 2");
  await client.query(
    `INSERT INTO task (input, key, repeat, suspend, retry, backoff) VALUES ('SELECT 1 / (nextval(''odd'') % 2)', 'tried', '10 ms', 1, 1, '1 ms')`,
  );
  await until(client, "SELECT FROM task WHERE key = 'tried' AND state = 'DONE'", (rows) => rows.length > 2);
  await client.query("SELECT task_unschedule('tried')");
  // An expired run leaves the number as it is.
  const [late = ""] = await tasks.insert({ input, key: "late", repeat: "1 day", suspend: 3, plan: "2001-01-01" });
  assert.equal((await tasks.end(late)).state, "GONE");
  assert.equal((await waiting("late")).failures, 0);
});

test("a rule's place in its times is kept while it is suspended", async () => {
  await client.query(`INSERT INTO task (input, key, rule, suspend) VALUES ($1, 'ruled', '* * * * * *', 2)`, [input]);
  const { id } = await waiting("ruled", "plan = 'infinity'");
  assert.ok(await tasks.holds(id, "failures = 2 AND due = date_trunc('second', due) AND ready = false"));
  // The time that a query gives is computed when the schedule is resumed.
  const rule = "SELECT now() + interval '10 ms'";
  await client.query("INSERT INTO task (input, key, rule, suspend) VALUES ($1, 'asked', $2, 2)", [input, rule]);
  await waiting("asked", "plan = 'infinity' AND failures = 2");
  await client.query("SELECT task_resume('asked')");
  await waiting("asked", "plan = 'infinity' AND failures = 2");
  await client.query("SELECT task_unschedule('asked'), task_unschedule('ruled')");
});

test("a group pauses after so many failures in a row of its tasks", async () => {
  const failing = { input: "SELECT 1/0", group: "calls", suspend: 3 };
  const good = { input: "SELECT 1", group: "calls", suspend: 3 };
  const ids = await tasks.insert(failing, failing, good, failing, failing, failing);
  const rows = await tasks.ended(...ids);
  assert.deepEqual(
    rows.map(({ state }) => state),
    ["FAIL", "FAIL", "DONE", "FAIL", "FAIL", "FAIL"],
  );
  const pause = only(
    await until<{ reason: string }>(client, "SELECT reason FROM task_pause", ({ length }) => length > 0),
  );
  assert.equal(pause.reason, `suspended after 3 failures in a row, the last that of task ${ids.at(-1)}`);
  const { id, failures } = await pgTask.logged(({ msg, group }) => msg === message && group === "calls");
  assert.deepEqual([String(id), failures], [ids.at(-1), 3]);
  // Other groups go on, and so does this one when it is resumed. Then it has all its failures again.
  const [last = ""] = await tasks.insert(good);
  assert.equal((await tasks.run("SELECT 1", { group: "others" })).state, "DONE");
  assert.ok(await tasks.holds(last, "state = 'PLAN'"));
  await client.query(`DELETE FROM task_pause`);
  assert.equal((await tasks.end(last)).state, "DONE");
  const more = await tasks.ended(...(await tasks.insert(failing, failing)));
  assert.deepEqual(new Set(more.map(({ state }) => state)), new Set(["FAIL"]));
  assert.equal(await tasks.value("SELECT count(*)::integer FROM task_pause"), 0);
});

test("a schedule whose runs overlap counts in its group", async () => {
  await client.query(
    `INSERT INTO task (input, key, repeat, overlap, suspend, "group") VALUES ($1, 'often', '20 ms', true, 2, 'often')`,
    [input],
  );
  await until(client, `SELECT FROM task_pause WHERE "group" = 'often'`, (rows) => rows.length === 1);
  await client.query("SELECT task_unschedule('often'); DELETE FROM task_pause");
});

test("a task that takes its own session down counts as failed", async () => {
  const task = { input: "SELECT pg_terminate_backend(pg_backend_pid())", group: "fatal", suspend: 1 };
  const [id = ""] = await tasks.insert(task);
  assert.equal((await tasks.end(id)).state, "FAIL");
  const rows = await until<{ reason: string }>(client, "SELECT reason FROM task_pause", ({ length }) => length === 1);
  assert.equal(only(rows).reason, `suspended after a failure, that of task ${id}`);
  await client.query("DELETE FROM task_pause");
});

test("suspend is 0 or more", async () => {
  await assert.rejects(tasks.insert({ input: "SELECT", suspend: -1 }), /suspend must be 0 or more, not -1/);
  const failing = { input: "SELECT 1/0", group: "never", suspend: 0 };
  await tasks.ended(...(await tasks.insert(failing, failing)));
  assert.equal(await tasks.value("SELECT count(*)::integer FROM task_pause"), 0);
});

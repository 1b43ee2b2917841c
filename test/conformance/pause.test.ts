import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until, maxConcurrent, type TaskRow, inOrderOfStart, microseconds } from "../support/tasks.js";

const { client, tasks } = await serve();

/** Returns the time between two timestamps of rows, in microseconds. */
const between = (from: string | null = null, to: string | null = null): number => microseconds(to) - microseconds(from);

test("§4 a task with max < 0 starts only while none of its group runs", async () => {
  const wide = await tasks.add("SELECT pg_sleep(60)", { group: "busy", max: 5 });
  const { pid } = await tasks.sleeping(wide);
  const pausing = await tasks.add("SELECT 1", { group: "busy", max: -100 });
  await tasks.run("SELECT 1", { group: "busy", max: 5 });
  assert.equal((await tasks.row(pausing)).state, "PLAN");
  await client.query("SELECT pg_cancel_backend($1)", [pid]);
  const [stopped] = await tasks.ended(wide);
  const [row] = await tasks.ended(pausing);
  assert.ok((row?.start ?? "") >= (stopped?.stop ?? ""));
});

test("§4 while a task with max < 0 runs, tasks of its group with max 0 wait and those with a larger max run beside it", async () => {
  const id = await tasks.add("SELECT pg_sleep(60)", { group: "beside", max: -10 });
  const { pid } = await tasks.sleeping(id);
  const waiting = await tasks.add("SELECT 0", { group: "beside", max: 0 });
  assert.equal((await tasks.run("SELECT 1", { group: "beside", max: 1 })).state, "DONE");
  assert.equal((await tasks.row(waiting)).state, "PLAN");
  await client.query("SELECT pg_cancel_backend($1)", [pid]);
  await tasks.ended(id, waiting);
});

test("§4 max < 0 is ordered as 0: after larger values, and by id among those with 0", async () => {
  const maxima = [-5, 0, -1, 0, 2];
  const late = { active: "100 years", plan: "2024-01-01" };
  const ids = await tasks.together(
    ...maxima.map((max) => ({ input: "SELECT pg_sleep(0.01)", group: "order", max, ...late })),
  );
  const rows = inOrderOfStart(await tasks.ended(...ids));
  const order = rows.map((row) => ids.indexOf(row.id));
  // The task with the larger max starts first; among equal ones, the smaller id. The pause after the first pausing task
  // (max < 0) postpones the other one.
  assert.deepEqual(order.slice(0, 2), [4, 0]);
  assert.ok(order.indexOf(1) < order.indexOf(3));
});

for (const [what, max, state, error] of [
  ["a task with max < 0 runs however late it is", -1, "DONE", null],
  ["an equally late task with max 0 does not run", 0, "GONE", "ERROR:  task not active"],
] as const) {
  test(`§4 ${what}`, async () => {
    const row = await tasks.run("SELECT 1", { max, plan: "2001-01-01", group: "late" });
    assert.deepEqual([row.state, row.error], [state, error]);
  });
}

test("§4 after a run with max < 0 and drift, the group's other tasks with max < 0 are planned at stop + |max| ms", async () => {
  const ids = await tasks.together(
    { input: "SELECT pg_sleep(0.05)", group: "drift", max: -300, drift: true },
    { input: "SELECT 1", group: "drift", max: -400, drift: true },
    { input: "SELECT 1", group: "drift", max: -60000, drift: true },
  );
  const [first, second] = await tasks.ended(...ids.slice(0, 2));
  assert.equal(between(first?.stop, second?.plan), 400_000);
  assert.ok((second?.start ?? "") >= (second?.plan ?? "?"));
  const third = await tasks.row(ids[2] ?? "");
  assert.equal(third.state, "PLAN");
  // The third task was not due when the second one ran, because the pause after the first one had postponed it.
  assert.equal(between(first?.stop, third.plan), 60_000_000);
});

test("§4 after a run with max < 0 without drift, the others are planned at the first plan + n·|max| ms after the stop", async () => {
  const ids = await tasks.together(
    { input: "SELECT pg_sleep(0.25)", group: "steady", max: -100, drift: false },
    { input: "SELECT 1", group: "steady", max: -100, drift: false },
    { input: "SELECT 1", group: "steady", max: -70, drift: false },
  );
  const before: TaskRow[] = [];
  for (const id of ids) before.push(await tasks.row(id));
  const rows = await tasks.ended(...ids);
  for (const [index, own] of [
    [1, 100_000],
    [2, 70_000],
  ] as const) {
    const moved = between(before[index]?.plan, rows[index]?.plan);
    assert.ok(moved > 0);
    assert.equal(moved % own, 0, `${moved} µs are no multiple of ${own}`);
    assert.ok((rows[index]?.start ?? "") >= (rows[index]?.plan ?? "?"));
  }
  const [first] = rows;
  const firstAfter = rows.slice(1).map((row) => between(first?.stop, row.plan));
  assert.ok(firstAfter.some((distance) => distance > 0 && distance <= 100_000));
  assert.equal(maxConcurrent(rows), 1);
});

test("§4 a pause does not move the plans of tasks with max ≥ 0", async () => {
  const ids = await tasks.together(
    { input: "SELECT pg_sleep(0.05)", group: "mixed", max: -60000 },
    { input: "SELECT 1", group: "mixed", max: 0 },
    { input: "SELECT 1", group: "mixed", max: -60000 },
  );
  const before = await tasks.row(ids[1] ?? "");
  const [, after] = await tasks.ended(...ids.slice(0, 2));
  assert.equal(after?.plan, before.plan);
  const moved = await tasks.row(ids[2] ?? "");
  assert.equal(moved.state, "PLAN");
  assert.ok(moved.plan > (after?.stop ?? ""));
});

test("§4 a pause does not move the plans of another group", async () => {
  const ids = await tasks.together(
    { input: "SELECT 1", group: "this", max: -60000 },
    { input: "SELECT 1", group: "that", max: -60000 },
  );
  const before = await tasks.row(ids[1] ?? "");
  const [, other] = await tasks.ended(...ids);
  assert.equal(other?.plan, before.plan);
});

test("§4 a task that is not due when another's pause begins keeps its plan", async () => {
  const ids = await tasks.together(
    { input: "SELECT 1", group: "future", max: -60000 },
    { input: "SELECT 1", group: "future", max: -60000, plan: "2100-01-01" },
  );
  await tasks.ended(...ids.slice(0, 1));
  await tasks.run("SELECT 1", { group: "another" });
  assert.equal((await tasks.row(ids[1] ?? "")).plan, "2100-01-01T00:00:00.000000");
});

test("§4 a failed run pauses its group as well", async () => {
  const ids = await tasks.together(
    { input: "SELECT 1/0", group: "failed", max: -60000 },
    { input: "SELECT 1", group: "failed", max: -60000 },
  );
  const [failed] = await tasks.ended(...ids.slice(0, 1));
  assert.equal(failed?.state, "FAIL");
  await until(client, `SELECT FROM task WHERE id = ${ids[1]} AND plan > now()`);
  assert.equal((await tasks.row(ids[1] ?? "")).state, "PLAN");
});

test("§6 the pause uses the row as the task left it", async () => {
  const ids = await tasks.together(
    {
      input: "UPDATE task SET max = -60000 WHERE id = current_setting('pg_task.id')::bigint",
      group: "own max",
      max: 0,
    },
    { input: "SELECT 1", group: "own max", max: -60000 },
  );
  await tasks.ended(...ids.slice(0, 1));
  await tasks.run("SELECT 1", { group: "own max", max: 0 });
  const other = await tasks.row(ids[1] ?? "");
  assert.equal(other.state, "PLAN");
});

test("§4 a repeating task with max < 0 keeps its own repetition", async () => {
  const row = await tasks.run("SELECT 1", { group: "again", max: -60000, repeat: "10 years" });
  assert.ok(await tasks.successorHolds(row.id, "n.plan = t.plan + interval '10 years' AND n.max = t.max"));
});

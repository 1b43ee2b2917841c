import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { only, type TaskRow } from "../../../support/tasks.js";

const { database, client, tasks } = await serve();

const unstarted = (row: TaskRow): boolean => row.state === "PLAN" && row.start === null;

test("a pause also delays all tasks that became due together with the run, however many there are", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", max, plan)
     SELECT 'SELECT 1', 'many', -3600000, statement_timestamp() + interval '300 ms' FROM generate_series(1, 3500)
     RETURNING id`,
  );
  const [first = "", ...others] = rows.map(({ id }) => id);
  const run = await tasks.end(first);
  const later = await tasks.until(others, () => true);
  const wrong = later.filter((row) => !unstarted(row) || row.plan <= (run.stop ?? ""));
  assert.deepEqual(wrong.slice(0, 5), []);
});

test("a pause also delays a task whose row was locked, before the task can start", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const [first = "", locked = "", other = ""] = await tasks.insert(
    { input: "SELECT 1 FROM pg_advisory_xact_lock(1)", group: "held", max: -3600000 },
    { input: "SELECT 2", group: "held", max: -3600000 },
    { input: "SELECT 3", group: "held", max: -3600000 },
  );
  await tasks.running(first);
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const run = await tasks.end(first);
  const [paused] = await tasks.until([other], () => true);
  assert.ok((paused?.plan ?? "") > (run.stop ?? ""));
  await holder.query("COMMIT");
  const row = only(await tasks.until([locked], ({ plan, state }) => state !== "PLAN" || plan > (run.stop ?? "")));
  assert.ok(unstarted(row), row.state);
  // Tasks of other groups still start.
  assert.equal((await tasks.run("SELECT 4", { group: "else" })).state, "DONE");
});

test("a task that a pause has delayed starts when the pause is over", async () => {
  const holder = await database.connect();
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(2)");
  const [first = "", locked = ""] = await tasks.insert(
    { input: "SELECT 1 FROM pg_advisory_xact_lock(2)", group: "short", max: -300, drift: true },
    { input: "SELECT 2", group: "short", max: -300, drift: true },
  );
  await tasks.running(first);
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);
  await gate.query("SELECT pg_advisory_unlock(2)");
  const run = await tasks.end(first);
  await holder.query("COMMIT");
  const row = await tasks.end(locked);
  const pausedMs = Date.parse(`${row.start}Z`) - Date.parse(`${run.stop}Z`);
  assert.ok(pausedMs >= 299, `${pausedMs} ms`);
});

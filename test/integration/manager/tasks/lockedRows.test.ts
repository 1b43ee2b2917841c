import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { statesOf, eventually, only } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const options = { "pg_task.sleep": 30, "pg_task.idle": 3, "pg_conf.log": "debug" };
const { pgTask, database, client, tasks } = await serve(options);
const configuration = { url: database.url, ...options };
const holder = await database.connect();
const gatekeeper = await database.connect();

/** Inserts a task that runs until its gate, an advisory lock, opens. */
async function gated(gate: number, more: Record<string, string | number> = {}): Promise<string> {
  await gatekeeper.query("SELECT pg_advisory_lock($1)", [gate]);
  const [id = ""] = await tasks.insert({
    input: `SELECT 'through' FROM pg_advisory_xact_lock(${gate})`,
    ...more,
  });
  const row = await tasks.running(id);
  await eventually(client, `SELECT FROM pg_locks WHERE pid = ${row.pid} AND NOT granted`, (rows) => rows.length === 1);
  return id;
}

async function open(gate: number): Promise<void> {
  await gatekeeper.query("SELECT pg_advisory_unlock($1)", [gate]);
}

/** Locks the row in a transaction that stays open. */
async function hold(id: string): Promise<void> {
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
}

/** Whether the manager has entered deep sleep, according to the log lines from index `from` on. */
function asleep(from: number): boolean {
  return pgTask.lines.slice(from).some((line) => line.msg === "executor threads stopped");
}

async function fallAsleep(from: number): Promise<void> {
  await pgTask.logged((line) => line.msg === "executor threads stopped", from);
}

test("a due task whose row is locked is passed over, and the later ones of its group go first", async () => {
  const first = await gated(1, { group: "same" });
  const [held = "", ...behind] = await tasks.insert(
    { input: "SELECT 1", group: "same" },
    { input: "SELECT 2", group: "same" },
    { input: "SELECT 3", group: "same" },
  );
  await hold(held);
  await open(1);
  const ended = await tasks.ended(first, ...behind);
  assert.deepEqual(
    ended.map((row) => row.output),
    ["through", "2", "3"],
  );
  assert.equal((await tasks.row(held)).state, "PLAN");
  await holder.query("COMMIT");
  assert.equal((await tasks.end(held)).output, "1");
});

test("late tasks whose rows are locked delay no other, in their group or elsewhere", async () => {
  await pgTask.stop();
  const late = { plan: "2001-01-01", active: "1 day" };
  const held = await tasks.insert(
    ...Array.from({ length: 120 }, (_, index) => ({
      input: "SELECT 1",
      group: index < 20 ? "late" : "later",
      ...late,
    })),
  );
  const others = await tasks.insert(
    { input: "SELECT 2", group: "late" },
    { input: "SELECT 2", group: "later", ...late },
    ...["x", "y", "z"].map((group) => ({ input: "SELECT 2", group, ...late })),
  );
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = ANY ($1) FOR UPDATE", [held]);
  await pgTask.start({ ...configuration, "pg_task.sleep": 1_000 });
  assert.deepEqual(statesOf(await tasks.ended(...others)), ["DONE", "GONE", "GONE", "GONE", "GONE"]);
  assert.equal((await tasks.until(held, ({ state }) => state === "PLAN")).length, 120);
  await holder.query("COMMIT");
  await tasks.until(held, ({ state }) => state === "GONE");
  await pgTask.stop();
  await pgTask.start(configuration);
});

test("a result that waits for a locked row is written even if the manager never pauses", async () => {
  const held = await gated(3);
  await hold(held);
  await open(3);
  // Each run of this task inserts the next one, so that the manager always has something to do.
  await tasks.insert({
    input:
      'INSERT INTO task (input, "group", delete) SELECT input, "group", true FROM task WHERE id = current_setting(\'pg_task.id\')::bigint AND EXISTS (SELECT FROM task WHERE id = ' +
      held +
      " AND state = 'WORK')",
    group: "endless",
  });
  await tasks.run("SELECT 1");
  await holder.query("COMMIT");
  assert.equal((await tasks.end(held)).output, "through");
});

test("a result that waits for a locked row keeps the manager awake", async () => {
  const held = await gated(4);
  await hold(held);
  const from = pgTask.lines.length;
  await open(4);
  await tasks.run("SELECT 1");
  // The time until this task's plan is long enough for the manager to enter deep sleep, if it had nothing to do.
  await tasks.run("SELECT 1", { plan: new Date(Date.now() + 600).toISOString() });
  assert.equal((await tasks.row(held)).state, "WORK");
  assert.equal(asleep(from), false);
  await holder.query("ROLLBACK");
  assert.equal((await tasks.end(held)).output, "through");
  await fallAsleep(from);
});

test("a due task whose row is locked keeps the manager awake", async () => {
  const first = await gated(5, { group: "awake" });
  const [held = ""] = await tasks.insert({ input: "SELECT 1", group: "awake" });
  await hold(held);
  const from = pgTask.lines.length;
  await open(5);
  await tasks.ended(first);
  await tasks.run("SELECT 1", { plan: new Date(Date.now() + 600).toISOString() });
  // The task may have been queued in the session of the first one.
  assert.ok(["PLAN", "TAKE"].includes((await tasks.row(held)).state));
  assert.equal(asleep(from), false);
  await holder.query("ROLLBACK");
  assert.equal((await tasks.end(held)).output, "1");
  await fallAsleep(from);
});

test("work goes on after the whole table was locked", async () => {
  const running = await gated(6);
  const first = pgTask.lines.length;
  await client.query("BEGIN");
  await client.query("LOCK TABLE task IN ACCESS EXCLUSIVE MODE");
  await open(6);
  // The manager has to wait for the lock when it writes the result.
  await pgTask.logged((line) => line.msg === "cycle deferred", first);
  await client.query("INSERT INTO task (input, data) VALUES ('SELECT 7', 'locked')");
  await client.query("COMMIT");
  assert.equal((await tasks.end(running)).output, "through");
  const { rows } = await client.query<{ id: string }>("SELECT id FROM task WHERE data = 'locked'");
  assert.equal(only(await tasks.ended(only(rows).id)).output, "7");
  assert.deepEqual(
    pgTask.lines.slice(first).filter((line) => line.msg === "manager unavailable, retrying"),
    [],
  );
});

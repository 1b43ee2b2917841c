import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, until, statesOf } from "../support/tasks.js";

const { client, tasks } = await serve({ "pg_task.delete": false });

/** A value for the column `after`. */
const list = (...ids: readonly string[]): string => `{${ids.join()}}`;

/** Waits until no dependencies are stored any more. */
async function settled(): Promise<void> {
  await eventually(client, "SELECT FROM task_after", (found) => found.length === 0);
}

test("a task waits until the task in after is DONE", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  await tasks.running(first.id);
  await tasks.lookedUp(second);
  const { state, plan } = await tasks.row(second);
  assert.deepEqual([state, plan], ["PLAN", null], "planned for infinity");
  await first.open();
  const [one, two] = await tasks.ended(first.id, second);
  assert.deepEqual([one?.state, two?.state], ["DONE", "DONE"]);
  assert.ok((two?.start ?? "") >= (one?.stop ?? "?"), "starts after the end of the first");
  await settled();
});

test("it starts at once if all have ended, or if their rows are gone", async () => {
  const first = await tasks.add("SELECT 1");
  await tasks.end(first);
  const gone = await tasks.add("SELECT 2");
  await tasks.end(gone);
  await client.query(`DELETE FROM task WHERE id = ${gone}`);
  assert.equal((await tasks.end(await tasks.add("SELECT 3", { after: list(first, gone) }))).state, "DONE");
});

test("fan-out and fan-in in one statement", async () => {
  const [report] = await tasks.endedOf(`
    WITH part AS (INSERT INTO task (input, "group") SELECT 'SELECT 1', 'part ' || n FROM generate_series(1, 20) AS n RETURNING id)
    INSERT INTO task (input, "group", after) SELECT 'SELECT 2', 'report', array_agg(id) FROM part RETURNING id`);
  assert.equal(report?.state, "DONE");
  const before = `state = 'DONE' AND stop <= (SELECT start FROM task WHERE id = ${report.id})`;
  const parts = `SELECT count(*) = 20 AND bool_and(${before}) FROM task WHERE "group" LIKE 'part %'`;
  assert.ok(await tasks.value(parts));
});

const verdicts: readonly (readonly [
  upon: string | null,
  first: string,
  second: string,
  state: string | null,
  error: string | null,
])[] = [
  [null, "SELECT 1", "SELECT 1/0", "GONE", "FAIL"],
  ["done", "SELECT 1/0", "SELECT 1", "GONE", "FAIL"],
  ["done", "SELECT 1", "SELECT 2", "DONE", null],
  ["fail", "SELECT 1", "SELECT 1/0", "DONE", null],
  ["fail", "SELECT 1/0", "SELECT 1", "DONE", null],
  ["fail", "SELECT 1", "SELECT 2", "GONE", null],
  ["end", "SELECT 1", "SELECT 1/0", "DONE", null],
  ["end", "SELECT 1", "SELECT 2", "DONE", null],
];
for (const [upon, first, second, state, failed] of verdicts) {
  for (const order of ["while they run", "when they have ended", "one by one"]) {
    test(`upon ${upon ?? "unset"}: after "${first}" and "${second}", ${order}, the task is ${state}`, async () => {
      const from = await tasks.blocker();
      const blocked = order === "when they have ended" ? {} : { after: list(from.id), upon: "end" };
      const one = await tasks.add(first, blocked);
      const two = await tasks.add(second, order === "one by one" ? { after: list(one), upon: "end" } : blocked);
      if (order === "when they have ended") await tasks.ended(one, two);
      const options = { after: list(one, two), delete: false, ...(upon === null ? {} : { upon }) };
      const id = await tasks.add("SELECT 3", options);
      await from.open();
      const row = await tasks.end(id);
      assert.deepEqual([row.state, row.error === null], [state, failed === null]);
      if (failed !== null) assert.match(row.error ?? "", /^ERROR: {2}task \d+, which it waits for, is FAIL$/);
      await settled();
    });
  }
}

test("if a step of a chain fails, all later steps are GONE, each because of the one before", async () => {
  const first = await tasks.add("SELECT 1/0");
  const second = await tasks.add("SELECT 2", { after: list(first) });
  const third = await tasks.add("SELECT 3", { after: list(second) });
  const rows = await tasks.ended(first, second, third);
  assert.deepEqual(statesOf(rows), ["FAIL", "GONE", "GONE"]);
  assert.equal(rows[1]?.error, `ERROR:  task ${first}, which it waits for, is FAIL`);
  assert.equal(rows[2]?.error, `ERROR:  task ${second}, which it waits for, is GONE`);
});

test("a dependent waits for the last try of a task with retry", async () => {
  await client.query("CREATE SEQUENCE tries");
  const first = await tasks.add("SELECT 1 / (nextval('tries') / 3)", { retry: 5, backoff: "1 ms" });
  const second = await tasks.add("SELECT 2", { after: list(first) });
  const [one, two] = await tasks.ended(first, second);
  assert.deepEqual([one?.state, two?.state], ["DONE", "DONE"]);
});

test("a task that its user stops or deletes counts as not done", async () => {
  for (const [change, state] of [
    ["UPDATE task SET state = 'STOP'", "STOP"],
    ["DELETE FROM task", "deleted"],
  ] as const) {
    const first = await tasks.add("SELECT 1", { plan: "infinity" });
    const second = await tasks.add("SELECT 2", { after: list(first) });
    await tasks.lookedUp(second);
    await client.query(`${change} WHERE id = ${first}`);
    const { state: found, error } = await tasks.end(second);
    assert.deepEqual([found, error], ["GONE", `ERROR:  task ${first}, which it waits for, is ${state}`]);
  }
});

test("a task that expires counts as not done", async () => {
  const first = await tasks.add("SELECT 1", { plan: "2020-01-01" });
  assert.equal((await tasks.end(await tasks.add("SELECT 2", { after: list(first) }))).state, "GONE");
});

test("a task that waited for a failure that did not come is deleted if it has delete", async () => {
  const first = await tasks.add("SELECT 1");
  const clean = await tasks.add("SELECT 2", { after: list(first), upon: "fail", delete: true });
  const last = await tasks.add("SELECT 3", { after: list(clean), upon: "end" });
  assert.equal((await tasks.end(last)).state, "DONE");
  await tasks.removed(clean);
});

test("plan and after both have to come", async () => {
  const first = await tasks.add("SELECT 1");
  const [row] = await tasks.endedOf(
    `INSERT INTO task (input, "group", after, plan) VALUES ('SELECT 2', 'both', '{${first}}', now() + interval '1 second') RETURNING id`,
  );
  assert.ok(await tasks.holds(row?.id ?? "", "start >= created + interval '1 second'"));
});

test("a plan that is set while it waits does not start it, but counts afterwards", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  await tasks.lookedUp(second);
  await tasks.set(second, "plan = now() + interval '1 hour'");
  assert.equal((await tasks.row(second)).plan, null, "planned for infinity");
  await first.open();
  await until(client, `SELECT plan FROM task WHERE id = ${second} AND plan < 'infinity'`);
  assert.ok(await tasks.holds(second, "plan > now() + interval '50 min' AND state = 'PLAN'"));
});

test("setting after to null lets it go, and another list replaces the first", async () => {
  const first = await tasks.blocker();
  const other = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  const third = await tasks.add("SELECT 3", { after: list(first.id) });
  await tasks.lookedUp(second, third);
  await tasks.set(second, "after = NULL");
  assert.equal((await tasks.end(second)).state, "DONE");
  await tasks.set(third, `after = '{${other.id}}'`);
  await other.open();
  assert.equal((await tasks.end(third)).state, "DONE");
  await first.open();
  await tasks.end(first.id);
  await settled();
});

test("a task that is stopped while it waits stays STOP, and waits again when it is planned again", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  await tasks.lookedUp(second);
  await tasks.set(second, "state = 'STOP'");
  await tasks.set(second, "state = 'PLAN', plan = now()");
  await tasks.lookedUp(second);
  await first.open();
  assert.equal((await tasks.end(second)).state, "DONE");
});

/** Inserts a task that waits for a failure, and a running task for which it still waits after another one has failed. */
async function insertWaitingForFailure() {
  const running = await tasks.blocker();
  const failed = await tasks.add("SELECT 1/0", { plan: "infinity" });
  const waiting = await tasks.add("SELECT 3", { after: list(failed, running.id), upon: "fail" });
  await tasks.lookedUp(waiting);
  await tasks.set(failed, "plan = now()");
  await eventually(client, "SELECT FROM task_after WHERE failed");
  return { failed, running, waiting };
}

test("of a task that is stopped while it waits for a failure, no dependencies are left", async () => {
  const { running, waiting } = await insertWaitingForFailure();
  await tasks.set(waiting, "state = 'STOP'");
  await running.open();
  await tasks.end(running.id);
  await settled();
});

test("a task that waited for a failure and is planned again waits for the failed task if that runs again", async () => {
  const { failed, running, waiting } = await insertWaitingForFailure();
  const { wait, open } = await tasks.gate();
  await tasks.set(waiting, "state = 'STOP'");
  await client.query("UPDATE task SET state = 'PLAN', plan = now(), input = $2 WHERE id = $1", [failed, wait]);
  await tasks.set(waiting, "state = 'PLAN', plan = now()");
  await tasks.lookedUp(waiting);
  await running.open();
  await tasks.end(running.id);
  await open();
  const row = await tasks.end(waiting);
  assert.deepEqual([row.state, row.error], ["GONE", null], "no task has failed");
  await settled();
});

test("a schedule that waits goes on from its planned time, and its successor does not wait", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id), repeat: "1 day" });
  await tasks.lookedUp(second);
  await first.open();
  await tasks.end(second);
  const kept = "n.after IS NULL AND n.wait IS NULL AND n.plan = t.created + interval '1 day'";
  assert.ok(await tasks.successorHolds(second, kept));
});

test("a schedule whose first run is GONE because of a predecessor goes on", async () => {
  const first = await tasks.add("SELECT 1/0");
  const second = await tasks.add("SELECT 2", { after: list(first), rule: "0 0 1 1 *" });
  assert.equal((await tasks.end(second)).state, "GONE");
  await until(client, `SELECT * FROM task WHERE parent = ${second} AND state = 'PLAN'`);
});

test("the end of a session counts once: a rescued task releases its dependents", async () => {
  const first = await tasks.add("SELECT pg_terminate_backend(pg_backend_pid())");
  const second = await tasks.add("SELECT 2", { after: list(first), upon: "fail" });
  assert.equal((await tasks.end(second)).state, "DONE");
});

test("duplicates in after count once", async () => {
  const first = await tasks.add("SELECT 1");
  assert.equal((await tasks.end(await tasks.add("SELECT 2", { after: list(first, first) }))).state, "DONE");
});

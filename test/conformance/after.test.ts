import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, until, only, type NewTask, statesOf } from "../support/tasks.js";

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
  const { rows } = await client.query<{ id: string }>(`
    WITH part AS (INSERT INTO task (input, "group") SELECT 'SELECT 1', 'part ' || n FROM generate_series(1, 20) AS n RETURNING id)
    INSERT INTO task (input, "group", after) SELECT 'SELECT 2', 'report', array_agg(id) FROM part RETURNING id`);
  const report = await tasks.end(only(rows).id);
  assert.equal(report.state, "DONE");
  const { rows: parts } = await client.query<{ ok: boolean }>(
    `SELECT count(*) = 20 AND bool_and(state = 'DONE' AND stop <= (SELECT start FROM task WHERE id = ${report.id})) AS ok FROM task WHERE "group" LIKE 'part %'`,
  );
  assert.deepEqual(parts, [{ ok: true }]);
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

test("a chain is inserted in one transaction, and each step runs after the one before", async () => {
  const key = await tasks.blocker();
  await client.query("BEGIN");
  const ids = [key.id];
  for (let step = 1; step <= 5; step++) ids.push(await tasks.add(`SELECT ${step}`, { after: list(ids.at(-1) ?? "") }));
  await client.query("COMMIT");
  await key.open();
  const rows = await tasks.ended(...ids);
  for (const [index, row] of rows.entries()) {
    assert.equal(row.state, "DONE");
    if (index > 0) assert.ok((row.start ?? "") >= (rows[index - 1]?.stop ?? "?"));
  }
});

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
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", after, plan) VALUES ('SELECT 2', 'both', '{${first}}', now() + interval '1 second') RETURNING id`,
  );
  const row = await tasks.end(only(rows).id);
  const { rows: late } = await client.query(
    `SELECT start >= created + interval '1 second' AS late FROM task WHERE id = ${row.id}`,
  );
  assert.deepEqual(late, [{ late: true }]);
});

test("a plan that is set while it waits does not start it, but counts afterwards", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  await tasks.lookedUp(second);
  await client.query(`UPDATE task SET plan = now() + interval '1 hour' WHERE id = ${second}`);
  assert.equal((await tasks.row(second)).plan, null, "planned for infinity");
  await first.open();
  await until(client, `SELECT plan FROM task WHERE id = ${second} AND plan < 'infinity'`);
  const { rows } = await client.query(
    `SELECT plan > now() + interval '50 min' AS hour, state::text AS state FROM task WHERE id = ${second}`,
  );
  assert.deepEqual(rows, [{ hour: true, state: "PLAN" }]);
});

test("setting after to null lets it go, and another list replaces the first", async () => {
  const first = await tasks.blocker();
  const other = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: list(first.id) });
  const third = await tasks.add("SELECT 3", { after: list(first.id) });
  await tasks.lookedUp(second, third);
  await client.query(`UPDATE task SET after = NULL WHERE id = ${second}`);
  assert.equal((await tasks.end(second)).state, "DONE");
  await client.query(`UPDATE task SET after = '{${other.id}}' WHERE id = ${third}`);
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
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${second}`);
  await client.query(`UPDATE task SET state = 'PLAN', plan = now() WHERE id = ${second}`);
  await tasks.lookedUp(second);
  await first.open();
  assert.equal((await tasks.end(second)).state, "DONE");
});

/** Inserts a task that waits for a failure, and a running task for which it still waits after another one has failed. */
async function insertWaitingForFailure(): Promise<{
  readonly failed: string;
  readonly running: Awaited<ReturnType<typeof tasks.blocker>>;
  readonly waiting: string;
}> {
  const running = await tasks.blocker();
  const failed = await tasks.add("SELECT 1/0", { plan: "infinity" });
  const waiting = await tasks.add("SELECT 3", { after: list(failed, running.id), upon: "fail" });
  await tasks.lookedUp(waiting);
  await client.query(`UPDATE task SET plan = now() WHERE id = ${failed}`);
  await eventually(client, "SELECT FROM task_after WHERE failed");
  return { failed, running, waiting };
}

test("of a task that is stopped while it waits for a failure, no dependencies are left", async () => {
  const { running, waiting } = await insertWaitingForFailure();
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${waiting}`);
  await running.open();
  await tasks.end(running.id);
  await settled();
});

test("a task that waited for a failure and is planned again waits for the failed task if that runs again", async () => {
  const { failed, running, waiting } = await insertWaitingForFailure();
  const { wait, open } = await tasks.gate();
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${waiting}`);
  await client.query("UPDATE task SET state = 'PLAN', plan = now(), input = $2 WHERE id = $1", [failed, wait]);
  await client.query(`UPDATE task SET state = 'PLAN', plan = now() WHERE id = ${waiting}`);
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
  const next = `SELECT after, wait, plan = (SELECT created + interval '1 day' FROM task WHERE id = ${second}) AS kept FROM task WHERE parent = ${second}`;
  assert.deepEqual(await until(client, next), [{ after: null, wait: null, kept: true }]);
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

const refused: readonly (readonly [Omit<NewTask, "input">, RegExp])[] = [
  [
    { after: "{9223372036854775807}" },
    /^after contains 9223372036854775807, which is not below its own id \d+: a task can only wait for older ones$/,
  ],
  [{ after: "{{1,2},{2,3}}" }, /^after must be an array of one dimension$/],
  [{ after: "{1,null}" }, /^after contains null$/],
  [{ upon: "end" }, /^upon is set without after$/],
  [{ after: "{}", upon: "end" }, /^upon is set without after$/],
  [{ after: "{1}", upon: "ok" }, /^upon must be done, fail or end, not "ok"$/],
  [{ after: "{1}", rule: "SELECT now()" }, /^after and a rule that is a query exclude each other$/],
];
for (const [columns, message] of refused) {
  test(`INSERT refuses ${JSON.stringify(columns)}`, async () => {
    await assert.rejects(tasks.insert({ input: "", ...columns }), (error: { code?: string; message: string }) => {
      assert.match(error.message, message);
      return error.code === "22023";
    });
  });
}

test("a task cannot wait for itself", async () => {
  await assert.rejects(
    client.query("INSERT INTO task (id, input, after) VALUES (1000000, '', '{1000000}')"),
    /after contains 1000000, which is not below its own id 1000000/,
  );
});

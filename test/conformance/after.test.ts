import assert from "node:assert/strict";
import { eventually, until } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { only, Tasks, type NewTask, type TaskRow } from "../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

let groups = 0;

/** Inserts a task in a group of its own, so that nothing but `after` delays it. */
async function insert(input: string, more: Omit<NewTask, "input"> = {}): Promise<string> {
  return only(await tasks.insert({ input, group: `after ${++groups}`, ...more }));
}

/** A value for the column `after`. */
const list = (...ids: readonly string[]): string => `{${ids.join()}}`;

const ended = async (id: string): Promise<TaskRow> => only(await tasks.ended(id));

/** Waits until pg-task has looked up the predecessors of a task that waits on. */
async function looksUp(...ids: readonly string[]): Promise<void> {
  await until(
    client,
    `SELECT wait FROM task WHERE id IN (${ids.join()}) AND wait = 0`,
    (rows) => rows.length === ids.length,
  );
}

/** Waits until no dependencies are stored any more. */
async function settled(): Promise<void> {
  await eventually(client, "SELECT FROM task_after", (found) => found.length === 0);
}

/** Inserts a task without output that runs until `release` is called. */
async function blocker(
  more: Omit<NewTask, "input"> = {},
): Promise<{ readonly id: string; readonly release: () => Promise<void> }> {
  const key = ++groups;
  await client.query("SELECT pg_advisory_lock(7, $1)", [key]);
  const id = await insert(`SELECT WHERE pg_advisory_xact_lock_shared(7, ${key}) IS NULL`, more);
  const release = async (): Promise<void> => void (await client.query("SELECT pg_advisory_unlock(7, $1)", [key]));
  return { id, release };
}

test("a task waits until the task in after is DONE", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: list(first.id) });
  await tasks.running(first.id);
  await looksUp(second);
  const { state, plan } = await tasks.row(second);
  assert.deepEqual([state, plan], ["PLAN", null], "planned for infinity");
  await first.release();
  const [one, two] = await tasks.ended(first.id, second);
  assert.deepEqual([one?.state, two?.state], ["DONE", "DONE"]);
  assert.ok((two?.start ?? "") >= (one?.stop ?? "?"), "starts after the end of the first");
  await settled();
});

test("it starts at once if all have ended, or if their rows are gone", async () => {
  const first = await insert("SELECT 1");
  await ended(first);
  const gone = await insert("SELECT 2");
  await ended(gone);
  await client.query(`DELETE FROM task WHERE id = ${gone}`);
  assert.equal((await ended(await insert("SELECT 3", { after: list(first, gone) }))).state, "DONE");
});

test("fan-out and fan-in in one statement", async () => {
  const { rows } = await client.query<{ id: string }>(`
    WITH part AS (INSERT INTO task (input, "group") SELECT 'SELECT 1', 'part ' || n FROM generate_series(1, 20) AS n RETURNING id)
    INSERT INTO task (input, "group", after) SELECT 'SELECT 2', 'report', array_agg(id) FROM part RETURNING id`);
  const report = await ended(only(rows).id);
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
      const from = await blocker();
      const blocked = order === "when they have ended" ? {} : { after: list(from.id), upon: "end" };
      const one = await insert(first, blocked);
      const two = await insert(second, order === "one by one" ? { after: list(one), upon: "end" } : blocked);
      if (order === "when they have ended") await tasks.ended(one, two);
      const options = { after: list(one, two), delete: false, ...(upon === null ? {} : { upon }) };
      const id = await insert("SELECT 3", options);
      await from.release();
      const row = await ended(id);
      assert.deepEqual([row.state, row.error === null], [state, failed === null]);
      if (failed !== null) assert.match(row.error ?? "", /^ERROR: {2}task \d+, which it waits for, is FAIL$/);
      await settled();
    });
  }
}

test("a chain is inserted in one transaction, and each step runs after the one before", async () => {
  const key = await blocker();
  await client.query("BEGIN");
  const ids = [key.id];
  for (let step = 1; step <= 5; step++) ids.push(await insert(`SELECT ${step}`, { after: list(ids.at(-1) ?? "") }));
  await client.query("COMMIT");
  await key.release();
  const rows = await tasks.ended(...ids);
  for (const [index, row] of rows.entries()) {
    assert.equal(row.state, "DONE");
    if (index > 0) assert.ok((row.start ?? "") >= (rows[index - 1]?.stop ?? "?"));
  }
});

test("if a step of a chain fails, all later steps are GONE, each because of the one before", async () => {
  const first = await insert("SELECT 1/0");
  const second = await insert("SELECT 2", { after: list(first) });
  const third = await insert("SELECT 3", { after: list(second) });
  const rows = await tasks.ended(first, second, third);
  assert.deepEqual(
    rows.map(({ state }) => state),
    ["FAIL", "GONE", "GONE"],
  );
  assert.equal(rows[1]?.error, `ERROR:  task ${first}, which it waits for, is FAIL`);
  assert.equal(rows[2]?.error, `ERROR:  task ${second}, which it waits for, is GONE`);
});

test("a dependent waits for the last try of a task with retry", async () => {
  await client.query("CREATE SEQUENCE tries");
  const first = await insert("SELECT 1 / (nextval('tries') / 3)", { retry: 5, backoff: "1 ms" });
  const second = await insert("SELECT 2", { after: list(first) });
  const [one, two] = await tasks.ended(first, second);
  assert.deepEqual([one?.state, two?.state], ["DONE", "DONE"]);
});

test("a task that its user stops or deletes counts as not done", async () => {
  for (const [change, state] of [
    ["UPDATE task SET state = 'STOP'", "STOP"],
    ["DELETE FROM task", "deleted"],
  ] as const) {
    const first = await insert("SELECT 1", { plan: "infinity" });
    const second = await insert("SELECT 2", { after: list(first) });
    await looksUp(second);
    await client.query(`${change} WHERE id = ${first}`);
    const { state: found, error } = await ended(second);
    assert.deepEqual([found, error], ["GONE", `ERROR:  task ${first}, which it waits for, is ${state}`]);
  }
});

test("a task that expires counts as not done", async () => {
  const first = await insert("SELECT 1", { plan: "2020-01-01" });
  assert.equal((await ended(await insert("SELECT 2", { after: list(first) }))).state, "GONE");
});

test("a task with delete whose end others wait for is deleted after they have been released", async () => {
  const first = await blocker({ delete: true });
  const second = await insert("SELECT 2", { after: list(first.id) });
  await looksUp(second);
  await first.release();
  assert.equal((await ended(second)).state, "DONE");
  await tasks.removed(first.id);
});

test("a task that waited for a failure that did not come is deleted if it has delete", async () => {
  const first = await insert("SELECT 1");
  const clean = await insert("SELECT 2", { after: list(first), upon: "fail", delete: true });
  const last = await insert("SELECT 3", { after: list(clean), upon: "end" });
  assert.equal((await ended(last)).state, "DONE");
  await tasks.removed(clean);
});

test("plan and after both have to come", async () => {
  const first = await insert("SELECT 1");
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", after, plan) VALUES ('SELECT 2', 'both', '{${first}}', now() + interval '1 second') RETURNING id`,
  );
  const row = await ended(only(rows).id);
  const { rows: late } = await client.query(
    `SELECT start >= created + interval '1 second' AS late FROM task WHERE id = ${row.id}`,
  );
  assert.deepEqual(late, [{ late: true }]);
});

test("a plan that is set while it waits does not start it, but counts afterwards", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: list(first.id) });
  await looksUp(second);
  await client.query(`UPDATE task SET plan = now() + interval '1 hour' WHERE id = ${second}`);
  assert.equal((await tasks.row(second)).plan, null, "planned for infinity");
  await first.release();
  await until(client, `SELECT plan FROM task WHERE id = ${second} AND plan < 'infinity'`, (rows) => rows.length === 1);
  const { rows } = await client.query(
    `SELECT plan > now() + interval '50 min' AS hour, state::text AS state FROM task WHERE id = ${second}`,
  );
  assert.deepEqual(rows, [{ hour: true, state: "PLAN" }]);
});

test("setting after to null lets it go, and another list replaces the first", async () => {
  const first = await blocker();
  const other = await blocker();
  const second = await insert("SELECT 2", { after: list(first.id) });
  const third = await insert("SELECT 3", { after: list(first.id) });
  await looksUp(second, third);
  await client.query(`UPDATE task SET after = NULL WHERE id = ${second}`);
  assert.equal((await ended(second)).state, "DONE");
  await client.query(`UPDATE task SET after = '{${other.id}}' WHERE id = ${third}`);
  await other.release();
  assert.equal((await ended(third)).state, "DONE");
  await first.release();
  await ended(first.id);
  await settled();
});

test("a task that is stopped while it waits stays STOP, and waits again when it is planned again", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: list(first.id) });
  await looksUp(second);
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${second}`);
  await client.query(`UPDATE task SET state = 'PLAN', plan = now() WHERE id = ${second}`);
  await looksUp(second);
  await first.release();
  assert.equal((await ended(second)).state, "DONE");
});

/** Inserts a task that waits for a failure, and a running task for which it still waits after another one has failed. */
async function insertWaitingForFailure(): Promise<{
  readonly failed: string;
  readonly running: Awaited<ReturnType<typeof blocker>>;
  readonly waiting: string;
}> {
  const running = await blocker();
  const failed = await insert("SELECT 1/0", { plan: "infinity" });
  const waiting = await insert("SELECT 3", { after: list(failed, running.id), upon: "fail" });
  await looksUp(waiting);
  await client.query(`UPDATE task SET plan = now() WHERE id = ${failed}`);
  await eventually(client, "SELECT FROM task_after WHERE failed", (found) => found.length === 1);
  return { failed, running, waiting };
}

test("of a task that is stopped while it waits for a failure, no dependencies are left", async () => {
  const { running, waiting } = await insertWaitingForFailure();
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${waiting}`);
  await running.release();
  await ended(running.id);
  await settled();
});

test("a task that waited for a failure and is planned again waits for the failed task if that runs again", async () => {
  const { failed, running, waiting } = await insertWaitingForFailure();
  const again = ++groups;
  await client.query("SELECT pg_advisory_lock(7, $1)", [again]);
  const input = `SELECT pg_advisory_xact_lock_shared(7, ${again})`;
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${waiting}`);
  await client.query("UPDATE task SET state = 'PLAN', plan = now(), input = $2 WHERE id = $1", [failed, input]);
  await client.query(`UPDATE task SET state = 'PLAN', plan = now() WHERE id = ${waiting}`);
  await looksUp(waiting);
  await running.release();
  await ended(running.id);
  await client.query("SELECT pg_advisory_unlock(7, $1)", [again]);
  const row = await ended(waiting);
  assert.deepEqual([row.state, row.error], ["GONE", null], "no task has failed");
  await settled();
});

test("a schedule that waits goes on from its planned time, and its successor does not wait", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: list(first.id), repeat: "1 day" });
  await looksUp(second);
  await first.release();
  await ended(second);
  const next = `SELECT after, wait, plan = (SELECT created + interval '1 day' FROM task WHERE id = ${second}) AS kept FROM task WHERE parent = ${second}`;
  assert.deepEqual(await until(client, next, (rows) => rows.length === 1), [{ after: null, wait: null, kept: true }]);
});

test("a schedule whose first run is GONE because of a predecessor goes on", async () => {
  const first = await insert("SELECT 1/0");
  const second = await insert("SELECT 2", { after: list(first), rule: "0 0 1 1 *" });
  assert.equal((await ended(second)).state, "GONE");
  await until(client, `SELECT * FROM task WHERE parent = ${second} AND state = 'PLAN'`, (rows) => rows.length === 1);
});

test("the end of a session counts once: a rescued task releases its dependents", async () => {
  const first = await insert("SELECT pg_terminate_backend(pg_backend_pid())");
  const second = await insert("SELECT 2", { after: list(first), upon: "fail" });
  assert.equal((await ended(second)).state, "DONE");
});

test("duplicates in after count once", async () => {
  const first = await insert("SELECT 1");
  assert.equal((await ended(await insert("SELECT 2", { after: list(first, first) }))).state, "DONE");
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

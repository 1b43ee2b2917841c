import assert from "node:assert/strict";
import type { Client } from "../../src/shared/postgres/client.js";
import { eventually, until } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { closeGate, lockRow, waitAt } from "../support/gates.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { only, Tasks, type NewTask, type TaskRow } from "../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });

let names = 0;
const newName = (): string => `order_${++names}`;

async function insert(input: string, more: Omit<NewTask, "input"> = {}): Promise<string> {
  return only(await tasks.insert({ input, group: newName(), ...more }));
}

const ended = async (id: string): Promise<TaskRow> => only(await tasks.ended(id));

/** Waits until pg-task has looked up the predecessors of these tasks, and they wait on. */
async function looksUp(...ids: readonly string[]): Promise<void> {
  await until(
    client,
    `SELECT FROM task WHERE id IN (${ids.join()}) AND wait = 0`,
    (rows) => rows.length === ids.length,
  );
}

interface Blocker {
  readonly id: string;
  /** Lets the task end. */
  readonly open: () => Promise<void>;
}

/** Inserts a task that runs until it is let go. */
async function blocker(more: Omit<NewTask, "input"> = {}): Promise<Blocker> {
  const gate = newName();
  const open = await closeGate(database, gate);
  return { id: await insert(waitAt(gate), more), open };
}

const conflict = "ON CONFLICT (key) WHERE key IS NOT NULL AND ready IS NOT NULL";

test("key: a task that waits for others holds its key, and a plan from ON CONFLICT does not let it go", async () => {
  const key = newName();
  const first = await blocker();
  const second = await insert("SELECT 2", { after: `{${first.id}}`, key });
  await looksUp(second);
  await assert.rejects(insert("SELECT 3", { key }), { code: "23505" });
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, key) VALUES ('SELECT 4', $1) ${conflict} DO UPDATE SET plan = excluded.plan, input = excluded.input
     RETURNING id, plan = 'infinity' AS waits`,
    [key],
  );
  assert.deepEqual(rows, [{ id: second, waits: true }]);
  await first.open();
  assert.equal((await ended(second)).output, "4");
});

test("key: a task that waits for others inherits a schedule, keeps its own time, and waits on", async () => {
  const key = newName();
  const other = await blocker();
  const first = await blocker({ key, repeat: "1 day", plan: "2001-01-01Z", active: "100 years" });
  await tasks.running(first.id);
  const second = await insert("SELECT 2", { key, after: `{${other.id}}`, plan: "2100-01-01Z" });
  await looksUp(second);
  await first.open();
  await ended(first.id);
  const inherited = `SELECT repeat::text AS repeat, plan::text AS plan, wait FROM task WHERE id = ${second}`;
  assert.deepEqual((await client.query(inherited)).rows, [{ repeat: "1 day", plan: "infinity", wait: 0 }]);
  await other.open();
  const planned = `SELECT plan = '2100-01-01Z' AS kept, state::text AS state FROM task WHERE id = ${second} AND wait IS NULL`;
  assert.deepEqual(await until(client, planned, (rows) => rows.length === 1), [{ kept: true, state: "PLAN" }]);
});

test("key: those that wait for a task are told when another one with its key takes its place", async () => {
  const key = newName();
  const first = await blocker({ key });
  const dependent = await insert("SELECT 2", { after: `{${first.id}}` });
  await tasks.running(first.id);
  await looksUp(dependent);
  await insert("SELECT 3", { key, plan: "infinity" });
  await client.query(`UPDATE task SET state = 'PLAN' WHERE id = ${first.id}`);
  assert.equal((await ended(first.id)).state, "GONE");
  assert.equal((await ended(dependent)).error, `ERROR:  task ${first.id}, which it waits for, is GONE`);
  await first.open();
});

test("active counts from the release: a task may wait for others for longer than active", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: `{${first.id}}`, plan: "2020-01-01", active: "1 minute" });
  await looksUp(second);
  await first.open();
  assert.equal((await ended(second)).state, "DONE");
});

test("gap and pause: released tasks start as others of their group do", async () => {
  const group = newName();
  const first = await blocker();
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
  const ids = [];
  for (let count = 0; count < 3; count += 1)
    ids.push(await insert("SELECT 1", { group, max: 9, gap: "0.1 s", after: `{${first.id}}` }));
  await looksUp(...ids);
  await first.open();
  await until(client, `SELECT FROM task WHERE id IN (${ids.join()}) AND wait IS NULL`, (rows) => rows.length === 3);
  await tasks.run("SELECT 1", { group: newName() });
  for (const id of ids) assert.equal((await tasks.row(id)).state, "PLAN");
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
  await tasks.ended(...ids);
  const { rows } = await client.query(
    `SELECT min(start - before) >= '0.1 s' AS apart FROM (
       SELECT start, lag(start) OVER (ORDER BY start) AS before FROM task WHERE id IN (${ids.join()})) AS t`,
  );
  assert.deepEqual(rows, [{ apart: true }]);
});

test("keep: a finished row is not pruned before those that wait for it have been released", async () => {
  const first = await blocker({ keep: "1 ms" });
  const second = await insert("SELECT 2", { after: `{${first.id}}` });
  await looksUp(second);
  // The lock delays the release.
  const unlock = await lockRow(database, second);
  await first.open();
  assert.equal((await ended(first.id)).state, "DONE");
  // The pruner works: another row of the same age goes.
  const { id } = await tasks.run("SELECT 1", { keep: "1 ms", group: newName() });
  await tasks.removed(id);
  assert.equal((await tasks.row(first.id)).state, "DONE");
  await unlock();
  assert.equal((await ended(second)).state, "DONE");
  await tasks.removed(first.id);
});

test("keep: the end of a task that is pruned soon after its failure is not forgotten", async () => {
  const first = await blocker();
  const failing = await insert("SELECT 1/0", { keep: "1 ms", after: `{${first.id}}`, upon: "end" });
  const other = await blocker();
  const then = await insert("SELECT 2", { after: `{${failing},${other.id}}`, upon: "fail" });
  await looksUp(failing, then);
  await first.open();
  await tasks.removed(failing);
  await other.open();
  assert.equal((await ended(then)).state, "DONE");
});

test("delete: a row is deleted when its dependents have been released, and not before", async () => {
  const first = await blocker({ delete: true });
  const second = await insert("SELECT 2", { after: `{${first.id}}` });
  await looksUp(second);
  const unlock = await lockRow(database, second);
  await first.open();
  assert.equal((await ended(first.id)).state, "DONE");
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(first.id)).state, "DONE");
  await unlock();
  assert.equal((await ended(second)).state, "DONE");
  await tasks.removed(first.id);
});

test("tasks whose dependencies were deleted by hand are looked up again, and wait for what they waited for", async () => {
  const first = await blocker();
  const second = await insert("SELECT 2", { after: `{${first.id}}` });
  await looksUp(second);
  await client.query("DELETE FROM task_after");
  // A change of the table makes the manager check the dependencies.
  await tasks.run("SELECT 1", { group: newName() });
  await eventually(client, `SELECT FROM task_after WHERE task = ${second}`, (found) => found.length === 1);
  const line = await pgTask.logged(({ msg }) => msg === "dependencies of waiting tasks were deleted, looking up again");
  assert.equal(line["tasks"], 1);
  assert.equal((await tasks.row(second)).state, "PLAN");
  await first.open();
  assert.equal((await ended(second)).state, "DONE");
});

test("after = after || after makes pg-task look up the others of a task again", async () => {
  const first = await blocker();
  const other = await blocker();
  const second = await insert("SELECT 2", { after: `{${first.id},${other.id}}` });
  await looksUp(second);
  await client.query(`DELETE FROM task_after WHERE task = ${second} AND predecessor = ${first.id}`);
  await client.query(`UPDATE task SET after = after || after WHERE id = ${second}`);
  await eventually(client, `SELECT FROM task_after WHERE task = ${second}`, (found) => found.length === 2);
  await other.open();
  await ended(other.id);
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(second)).state, "PLAN");
  await first.open();
  assert.equal((await ended(second)).state, "DONE");
});

const add = async (producer: Client, after: string | null): Promise<string> =>
  only(
    (
      await producer.query<{ id: string }>(
        `INSERT INTO task (input, after, "group") VALUES ('SELECT 1', $1, 'cache') RETURNING id`,
        [after],
      )
    ).rows,
  ).id;

test("with CACHE, a session's ids can be smaller than those of others, and after accepts only smaller ones", async () => {
  await client.query("ALTER SEQUENCE task_id_seq CACHE 20");
  const [one, two] = [await database.connect(), await database.connect()];
  await add(one, null);
  const later = await add(two, null);
  await assert.rejects(add(one, `{${later}}`), /after contains \d+, which .* a task can only wait for older ones$/);
  await client.query("ALTER SEQUENCE task_id_seq CACHE 1");
});

import assert from "node:assert/strict";
import type { Client } from "../../src/shared/postgres/client.js";
import { lockRow } from "../support/gates.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { valueOf, eventually, until, newName } from "../support/tasks.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.delete": false });

const conflict = "ON CONFLICT (key) WHERE key IS NOT NULL AND ready IS NOT NULL";

test("key: a task that waits for others holds its key, and a plan from ON CONFLICT does not let it go", async () => {
  const key = newName();
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: `{${first.id}}`, key });
  await tasks.lookedUp(second);
  await assert.rejects(tasks.add("SELECT 3", { key }), { code: "23505" });
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, key) VALUES ('SELECT 4', $1) ${conflict} DO UPDATE SET plan = excluded.plan, input = excluded.input
     RETURNING id, plan = 'infinity' AS waits`,
    [key],
  );
  assert.deepEqual(rows, [{ id: second, waits: true }]);
  await first.open();
  assert.equal((await tasks.end(second)).output, "4");
});

test("key: a task that waits for others inherits a schedule, keeps its own time, and waits on", async () => {
  const key = newName();
  const other = await tasks.blocker();
  const first = await tasks.blocker({ key, repeat: "1 day", plan: "2001-01-01Z", active: "100 years" });
  await tasks.running(first.id);
  const second = await tasks.add("SELECT 2", { key, after: `{${other.id}}`, plan: "2100-01-01Z" });
  await tasks.lookedUp(second);
  await first.open();
  await tasks.end(first.id);
  assert.ok(await tasks.holds(second, "repeat = '1 day' AND plan = 'infinity' AND wait = 0"));
  await other.open();
  await until(client, `SELECT FROM task WHERE id = ${second} AND wait IS NULL`);
  assert.ok(await tasks.holds(second, "plan = '2100-01-01Z' AND state = 'PLAN'"));
});

test("key: those that wait for a task are told when another one with its key takes its place", async () => {
  const key = newName();
  const first = await tasks.blocker({ key });
  const dependent = await tasks.add("SELECT 2", { after: `{${first.id}}` });
  await tasks.running(first.id);
  await tasks.lookedUp(dependent);
  await tasks.add("SELECT 3", { key, plan: "infinity" });
  await tasks.set(first.id, "state = 'PLAN'");
  assert.equal((await tasks.end(first.id)).state, "GONE");
  assert.equal((await tasks.end(dependent)).error, `ERROR:  task ${first.id}, which it waits for, is GONE`);
  await first.open();
});

test("active counts from the release: a task may wait for others for longer than active", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: `{${first.id}}`, plan: "2020-01-01", active: "1 minute" });
  await tasks.lookedUp(second);
  await first.open();
  assert.equal((await tasks.end(second)).state, "DONE");
});

test("gap and pause: released tasks start as others of their group do", async () => {
  const group = newName();
  const first = await tasks.blocker();
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
  const ids = [];
  for (let count = 0; count < 3; count += 1)
    ids.push(await tasks.add("SELECT 1", { group, max: 9, gap: "0.1 s", after: `{${first.id}}` }));
  await tasks.lookedUp(...ids);
  await first.open();
  await until(client, `SELECT FROM task WHERE id IN (${ids.join()}) AND wait IS NULL`, (rows) => rows.length === 3);
  await tasks.run("SELECT 1", { group: newName() });
  for (const id of ids) assert.equal((await tasks.row(id)).state, "PLAN");
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
  await tasks.ended(...ids);
  assert.ok(
    await tasks.value(`SELECT min(start - before) >= '0.1 s' AS apart FROM (
       SELECT start, lag(start) OVER (ORDER BY start) AS before FROM task WHERE id IN (${ids.join()})) AS t`),
  );
});

test("keep: a finished row is not pruned before those that wait for it have been released", async () => {
  const first = await tasks.blocker({ keep: "1 ms" });
  const second = await tasks.add("SELECT 2", { after: `{${first.id}}` });
  await tasks.lookedUp(second);
  // The lock delays the release.
  const unlock = await lockRow(database, second);
  await first.open();
  assert.equal((await tasks.end(first.id)).state, "DONE");
  // The pruner works: another row of the same age goes.
  const { id } = await tasks.run("SELECT 1", { keep: "1 ms", group: newName() });
  await tasks.removed(id);
  assert.equal((await tasks.row(first.id)).state, "DONE");
  await unlock();
  assert.equal((await tasks.end(second)).state, "DONE");
  await tasks.removed(first.id);
});

const readResults = "SELECT current_setting('pg_task.results')";

/** Waits until the pruner has deleted another row of the same age. */
async function pruned(): Promise<void> {
  const { id } = await tasks.run("SELECT 1", { keep: "1 ms", group: newName() });
  await tasks.removed(id);
}

for (const { title, upon, rest } of [
  { title: "ended as they should", upon: "done", rest: "SELECT 42" },
  { title: "failed", upon: "fail", rest: "SELECT 42; SELECT 1/0" },
])
  test(`keep: rows that ${title} stay until the task that waited for them has ended`, async () => {
    const group = newName();
    const [first, second] = [await tasks.held({ keep: "1 ms" }, rest), await tasks.held({ keep: "1 ms" }, rest)];
    await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
    const third = await tasks.add(readResults, { after: `{${first.id},${second.id}}`, upon, group });
    await tasks.lookedUp(third);
    for (const { id, open } of [first, second]) {
      await open();
      await tasks.end(id);
      await until(
        client,
        `SELECT FROM task_after WHERE predecessor = ${id} AND NOT failed`,
        (rows) => rows.length === 0,
      );
      await pruned();
    }
    assert.ok(await tasks.value(`SELECT wait IS NULL FROM task WHERE id = ${third}`), "released");
    await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
    const { output } = await tasks.end(third);
    assert.match(output ?? "", new RegExp(`"${first.id}": "[^"]*42.*"${second.id}": "[^"]*42`));
    await tasks.removed(first.id);
    await tasks.removed(second.id);
  });

test("keep: a row that has ended before a task begins to wait for it stays, too", async () => {
  const group = newName();
  const { id: first } = await tasks.run("SELECT 42", { keep: "1 hour", group: newName() });
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
  const second = await tasks.add(readResults, { after: `{${first}}`, group });
  await until(client, `SELECT FROM task WHERE id = ${second} AND wait IS NULL`, (rows) => rows.length === 1);
  await client.query(`UPDATE task SET keep = '1 ms' WHERE id = ${first}`);
  await pruned();
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
  assert.equal((await tasks.end(second)).output, `{"${first}": "42"}`);
  await tasks.removed(first);
});

test("the failure of a task whose row is deleted is not forgotten", async () => {
  const first = await tasks.blocker();
  const failing = await tasks.add("SELECT 1/0", { after: `{${first.id}}`, upon: "end" });
  const other = await tasks.blocker();
  const then = await tasks.add("SELECT 2", { after: `{${failing},${other.id}}`, upon: "fail" });
  await tasks.lookedUp(failing, then);
  await first.open();
  await until(client, `SELECT FROM task_after WHERE predecessor = ${failing} AND failed`, (rows) => rows.length === 1);
  await client.query(`DELETE FROM task WHERE id = ${failing}`);
  await other.open();
  assert.equal((await tasks.end(then)).state, "DONE");
});

test("delete: a row is deleted when its dependents have been released, and not before", async () => {
  const first = await tasks.blocker({ delete: true });
  const second = await tasks.add("SELECT 2", { after: `{${first.id}}` });
  await tasks.lookedUp(second);
  const unlock = await lockRow(database, second);
  await first.open();
  assert.equal((await tasks.end(first.id)).state, "DONE");
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(first.id)).state, "DONE");
  await unlock();
  assert.equal((await tasks.end(second)).state, "DONE");
  await tasks.removed(first.id);
});

test("tasks whose dependencies were deleted by hand are looked up again, and wait for what they waited for", async () => {
  const first = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: `{${first.id}}` });
  await tasks.lookedUp(second);
  await client.query("DELETE FROM task_after");
  // A change of the table makes the manager check the dependencies.
  await tasks.run("SELECT 1", { group: newName() });
  await eventually(client, `SELECT FROM task_after WHERE task = ${second}`);
  const line = await pgTask.logged(({ msg }) => msg === "dependencies of waiting tasks were deleted, looking up again");
  assert.equal(line["tasks"], 1);
  assert.equal((await tasks.row(second)).state, "PLAN");
  await first.open();
  assert.equal((await tasks.end(second)).state, "DONE");
});

test("after = after || after makes pg-task look up the others of a task again", async () => {
  const first = await tasks.blocker();
  const other = await tasks.blocker();
  const second = await tasks.add("SELECT 2", { after: `{${first.id},${other.id}}` });
  await tasks.lookedUp(second);
  await client.query(`DELETE FROM task_after WHERE task = ${second} AND predecessor = ${first.id}`);
  await tasks.set(second, "after = after || after");
  await eventually(client, `SELECT FROM task_after WHERE task = ${second}`, (found) => found.length === 2);
  await other.open();
  await tasks.end(other.id);
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(second)).state, "PLAN");
  await first.open();
  assert.equal((await tasks.end(second)).state, "DONE");
});

const add = (producer: Client, after: string | null): Promise<string> =>
  valueOf(producer, `INSERT INTO task (input, after, "group") VALUES ('SELECT 1', $1, 'cache') RETURNING id`, [after]);

test("with CACHE, a session's ids can be smaller than those of others, and after accepts only smaller ones", async () => {
  await client.query("ALTER SEQUENCE task_id_seq CACHE 20");
  const [one, two] = [await database.connect(), await database.connect()];
  await add(one, null);
  const later = await add(two, null);
  await assert.rejects(add(one, `{${later}}`), /after contains \d+, which .* a task can only wait for older ones$/);
  await client.query("ALTER SEQUENCE task_id_seq CACHE 1");
});

import assert from "node:assert/strict";
import { until } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { only, Tasks, type NewTask } from "../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** A `repeat` so long that no successor becomes due during the tests. */
const aLongTime = "10 years";

/** Waits for a task's successor, and returns all its columns as text. */
async function successor(parent: string): Promise<Record<string, string | null>> {
  const rows = await until<{ row: Record<string, string | null> }>(
    client,
    `SELECT (SELECT jsonb_object_agg(key, value) FROM jsonb_each_text(to_jsonb(t))) AS row
     FROM task AS t WHERE parent = ${parent}`,
    (found) => found.length > 0,
  );
  return only(rows).row;
}

/** Whether `condition` holds for a task `t` and its successor `n`. */
async function holds(parent: string, condition: string): Promise<boolean> {
  const { rows } = await client.query<{ holds: boolean }>(
    `SELECT ${condition} AS holds FROM task AS t JOIN task AS n ON n.parent = t.id WHERE t.id = $1`,
    [parent],
  );
  return only(rows).holds;
}

async function children(parent: string): Promise<number> {
  const { rowCount } = await client.query("SELECT FROM task WHERE parent = $1", [parent]);
  return rowCount ?? 0;
}

/** Runs another repeating task. When this one has a successor, pg-task has finished with all earlier tasks, too. */
async function repeatAnother(): Promise<void> {
  const other = await tasks.run("SELECT 'another'", { repeat: aLongTime, group: "other" });
  await successor(other.id);
}

test("§5 a task that ends DONE gets a successor with its id as parent", async () => {
  const row = await tasks.run("SELECT 1", { repeat: aLongTime });
  assert.equal(row.state, "DONE");
  const again = await successor(row.id);
  assert.equal(again["state"], "PLAN");
  assert.equal(again["parent"], row.id);
  assert.notEqual(again["id"], row.id);
  assert.equal(await children(row.id), 1);
});

test("§5 a task that ends FAIL gets a successor", async () => {
  const row = await tasks.run("SELECT 1/0", { repeat: aLongTime });
  assert.equal(row.state, "FAIL");
  assert.equal((await successor(row.id))["state"], "PLAN");
});

test("§5 a task that ends GONE gets a successor", async () => {
  const row = await tasks.run("SELECT 1", {
    plan: "2020-01-01 00:00:00+00",
    active: "1 hour",
    repeat: aLongTime,
  });
  assert.equal(row.state, "GONE");
  assert.equal((await successor(row.id))["state"], "PLAN");
  assert.ok(await holds(row.id, "n.plan = t.plan + interval '10 years'"));
});

test("§5 a task that reaches the crash limit gets a successor", async () => {
  const row = await tasks.run("SELECT pg_terminate_backend(pg_backend_pid())", {
    repeat: aLongTime,
    group: "crashing",
  });
  assert.equal(row.state, "FAIL");
  const again = await successor(row.id);
  assert.equal(again["state"], "PLAN");
});

test("§5 a stopped task gets no successor", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT pg_sleep(60)",
    repeat: aLongTime,
    group: "stopped",
  });
  await tasks.running(id);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  await tasks.until([id], (row) => row.state === "STOP" && row.owner === null);
  await repeatAnother();
  assert.equal(await children(id), 0);
});

test("§5 a task whose row the user deleted gets no successor", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT pg_sleep(60)",
    repeat: aLongTime,
    group: "deleted",
  });
  await tasks.running(id);
  await client.query("DELETE FROM task WHERE id = $1", [id]);
  await tasks.run("SELECT 'the group is free again'", { group: "deleted" });
  await repeatAnother();
  assert.equal(await children(id), 0);
});

test("§5 a task that deleted its own row gets no successor", async () => {
  const [id = ""] = await tasks.insert({
    input: "DELETE FROM task WHERE id = current_setting('pg_task.id')::bigint",
    repeat: aLongTime,
    group: "own",
  });
  await until(client, `SELECT FROM task WHERE id = ${id}`, (rows) => rows.length === 0);
  await repeatAnother();
  assert.equal(await children(id), 0);
});

test("§5 a task that is deleted for lack of output and error still gets a successor", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT WHERE false",
    delete: true,
    repeat: aLongTime,
  });
  const again = await successor(id);
  assert.equal(again["state"], "PLAN");
  const { rowCount } = await client.query("SELECT FROM task WHERE id = $1", [id]);
  assert.equal(rowCount, 0);
});

test("§5 all other columns are copied, including the user's own", async () => {
  await client.query(`ALTER TABLE task ADD COLUMN "my note" text, ADD COLUMN tags text[],
    ADD COLUMN serial integer GENERATED BY DEFAULT AS IDENTITY,
    ADD COLUMN twice integer GENERATED ALWAYS AS (count * 2) STORED`);
  const given: NewTask = {
    input: "SELECT 1 AS a, 'x' AS b",
    active: "2 days",
    live: "00:00:07",
    repeat: aLongTime,
    timeout: "00:00:09",
    count: 4,
    max: 6,
    delete: false,
    drift: false,
    header: false,
    save: true,
    string: false,
    atomic: false,
    delimiter: ";",
    escape: "\\",
    quote: '"',
    data: "mine",
    group: "it's a group",
    null: "nil",
    "my note": 'a "note"\\',
    tags: '{"a","b,c"}',
  };
  const row = await tasks.run(given.input, given);
  const again = await successor(row.id);
  const { rows } = await client.query<{ row: Record<string, string | null> }>(
    "SELECT (SELECT jsonb_object_agg(key, value) FROM jsonb_each_text(to_jsonb(t))) AS row FROM task AS t WHERE id = $1",
    [row.id],
  );
  const before = only(rows).row;
  const fresh =
    "id parent plan take start stop pid crash state ready error output owner serial attempt after upon created due wait plain";
  for (const column of Object.keys(before)) {
    if (fresh.split(" ").includes(column)) continue;
    assert.equal(again[column], before[column], column);
  }
  assert.equal(again["my note"], 'a "note"\\');
  assert.equal(again["twice"], "8");
  assert.notEqual(again["serial"], before["serial"]);
});

test("§5 the successor's start, stop, pid, error, output and crash are those of a new row", async () => {
  const row = await tasks.run("SELECT 1/0", { repeat: aLongTime, crash: 2 });
  const again = await successor(row.id);
  for (const column of ["take", "start", "stop", "pid", "error", "output", "owner"]) {
    assert.equal(again[column], null, column);
  }
  assert.equal(again["crash"], "0");
});

test("§5 a column added while pg-task runs is copied too", async () => {
  await tasks.run("SELECT 1", { repeat: aLongTime });
  await client.query("ALTER TABLE task ADD COLUMN added text");
  const row = await tasks.run("SELECT 1", { repeat: aLongTime, added: "later" });
  assert.equal((await successor(row.id))["added"], "later");
});

test("§5 dropping or renaming a column while pg-task runs prevents no successor", async () => {
  await client.query("ALTER TABLE task ADD COLUMN passing text, ADD COLUMN before text");
  await successor((await tasks.run("SELECT 1", { repeat: aLongTime })).id);
  await client.query("ALTER TABLE task DROP COLUMN passing");
  await successor((await tasks.run("SELECT 1", { repeat: aLongTime })).id);
  await client.query("ALTER TABLE task RENAME before TO afterwards");
  const row = await tasks.run("SELECT 1", { repeat: aLongTime, afterwards: "kept" });
  assert.equal((await successor(row.id))["afterwards"], "kept");
  const errors = pgTask.lines.filter(({ level }) => level === "error");
  assert.deepEqual(errors, []);
});

test("§5 with drift, the successor's plan is stop + repeat", async () => {
  const row = await tasks.run("SELECT pg_sleep(0.05)", { repeat: aLongTime, drift: true });
  await successor(row.id);
  assert.ok(await holds(row.id, "n.plan = t.stop + t.repeat"));
});

test("§5 without drift, the successor's plan is the first plan + n·repeat after now", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, plan, repeat, active)
     VALUES ('SELECT 1', now() - interval '100 days 5 hours', '7 days', '1 year') RETURNING id`,
  );
  const { id } = only(rows);
  assert.equal(only(await tasks.ended(id)).state, "DONE");
  await successor(id);
  assert.ok(await holds(id, "n.plan = t.plan + 15 * interval '7 days'"));
});

test("§5 a long outage yields one run, not a burst", async () => {
  const row = await tasks.run("SELECT 1", {
    plan: "1990-01-01 00:00:00+00",
    repeat: "1 second",
    active: "100 years",
    group: "outage",
    data: "outage",
  });
  const again = await successor(row.id);
  assert.ok(await holds(row.id, "n.plan > t.stop AND n.plan <= t.stop + interval '1 minute'"));
  assert.ok(
    await holds(
      row.id,
      "extract(microseconds FROM n.plan) = extract(microseconds FROM n.plan)::bigint / 1000000 * 1000000",
    ),
  );
  await client.query("UPDATE task SET repeat = '0' WHERE data = 'outage' AND state = 'PLAN'");
  assert.equal(await children(row.id), 1);
  assert.ok(again["id"]);
});

test("§5 each run has a row of its own, planned at plan + n·repeat", async () => {
  const [first = ""] = await tasks.insert({
    input: "SELECT pg_sleep(0.01)",
    repeat: "100 ms",
    group: "series",
    data: "series",
  });
  const rows = await until<{ id: string; parent: string; offset: number }>(
    client,
    `SELECT id, parent, extract(epoch FROM plan - (SELECT plan FROM task WHERE id = ${first}))::float8 AS offset
     FROM task WHERE data = 'series' AND state = 'DONE' ORDER BY id`,
    (found) => found.length >= 5,
  );
  await client.query("UPDATE task SET state = 'STOP' WHERE data = 'series' AND state = 'PLAN'");
  let before = -1;
  for (const [index, row] of rows.entries()) {
    const step = Math.round(row.offset * 1e6) / 1e5;
    assert.equal(step, Math.round(step), `${row.offset} is no multiple of 0.1`);
    assert.ok(step > before);
    before = step;
    if (index > 0) assert.equal(row.parent, rows[index - 1]?.id);
  }
});

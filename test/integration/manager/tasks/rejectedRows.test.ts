import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import type { LogLine } from "../../../support/logLines.js";
import { statesOf, only } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const options = { "pg_task.sleep": 30, "pg_conf.grace": 300 };
const { pgTask, database, client, tasks } = await serve(
  options,
  `
  ALTER TABLE task ADD COLUMN label text UNIQUE;
  ALTER TABLE task ADD COLUMN late_label text UNIQUE DEFERRABLE INITIALLY DEFERRED;
  CREATE TABLE effect (label text);
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'UR001'; END $$`,
);
const configuration = { url: database.url, ...options };
/** The identity of a backend that never existed. */
const nobody = "2147483647 2001-01-01T00:00:00.000000";

/** Returns the log lines, from index `from` on, that must not appear in any test. */
function stuck(from: number): readonly LogLine[] {
  return pgTask.lines
    .slice(from)
    .filter(({ msg }) => msg === "manager unavailable, retrying" || msg.startsWith("manager did not stop"));
}

function saidOf(id: string, from: number): readonly LogLine[] {
  return pgTask.lines.slice(from).filter((line) => line["id"] === id && line.level === "error");
}

/** Creates a trigger that rejects changes of rows that match `when`. Returns a function that drops the trigger. */
async function refusing(when: string): Promise<() => Promise<void>> {
  await client.query(
    `CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION refuse()`,
  );
  return async () => void (await client.query("DROP TRIGGER refuse ON task"));
}

/** Inserts the row of a running task as a dead process leaves it. With `done`, the task's effect has been committed. */
async function leftBehind(input: string, more: Record<string, string | number> = {}, done = false): Promise<string> {
  const [id = ""] = await tasks.insert({ input, state: "WORK", owner: nobody, ...more });
  await client.query("UPDATE task SET take = now(), start = now() WHERE id = $1", [id]);
  if (done) {
    await client.query(
      `INSERT INTO task_ledger_1 (id, take, running, start, stop)
       SELECT id, (date_part('epoch', take) * 1000000)::bigint, true, now(), now() FROM task WHERE id = $1`,
      [id],
    );
  }
  return id;
}

async function children(id: string): Promise<number> {
  const { rows } = await client.query("SELECT FROM task WHERE parent = $1", [id]);
  return rows.length;
}

for (const column of ["label", "late_label"]) {
  test(`a successor that a unique ${column} rejects is reported in error, and the outcome stays`, async () => {
    const from = pgTask.lines.length;
    const [done = "", failed = "", gone = "", once = ""] = await tasks.insert(
      { input: "SELECT 1", [column]: "done", repeat: "1 hour" },
      { input: "SELECT 1/0", [column]: "failed", repeat: "1 hour" },
      {
        input: "SELECT 1",
        [column]: "gone",
        repeat: "1 hour",
        plan: "2001-01-01",
        active: "1 day",
      },
      { input: "SELECT 2", [column]: "once" },
    );
    const rows = await tasks.ended(done, failed, gone, once);
    assert.deepEqual(statesOf(rows), ["DONE", "FAIL", "GONE", "DONE"]);
    const said = new RegExp(
      `^ERROR: {2}next run was not planned: duplicate key value violates unique constraint "task_${column}_key"\nDETAIL: {2}Key .* already exists\\.$`,
      "m",
    );
    for (const { error } of rows.slice(0, 3)) assert.match(error ?? "", said);
    assert.match(rows[1]?.error ?? "", /^ERROR: {2}division by zero\n/);
    assert.match(rows[2]?.error ?? "", /^ERROR: {2}task not active\n/);
    assert.equal(rows[3]?.error, null);
    for (const id of [done, failed, gone]) assert.equal(await children(id), 0);
    assert.deepEqual(stuck(from), []);
  });
}

test("a row with delete stays if its successor is rejected, to show the error", async () => {
  await client.query(
    `CREATE TRIGGER refuse BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION refuse()`,
  );
  const row = await tasks.run("SELECT 1 WHERE false", { delete: true, repeat: "1 hour" });
  assert.deepEqual(
    [row.state, row.output, row.error],
    ["DONE", null, "ERROR:  next run was not planned: not this one"],
  );
  await client.query("DROP TRIGGER refuse ON task");
});

test("a row that a user's foreign key references is not deleted, and shows how its task ended", async () => {
  await client.query("CREATE TABLE note (task bigint REFERENCES task)");
  const from = pgTask.lines.length;
  const input = `WITH n AS (INSERT INTO note VALUES (current_setting('pg_task.id')::bigint)) SELECT 1 WHERE false`;
  const [once = "", often = ""] = await tasks.insert(
    { input, delete: true },
    { input, delete: true, repeat: "1 hour" },
  );
  for (const { id, state, output, error } of await tasks.ended(once, often)) {
    assert.deepEqual([state, output, error], ["DONE", null, null]);
    const said = await pgTask.logged((line) => line["id"] === id, from);
    assert.equal(said.msg, "finished task cannot be deleted");
  }
  assert.equal(await children(once), 0);
  assert.equal(await children(often), 1);
  assert.deepEqual(stuck(from), []);
  await client.query("DROP TABLE note");
});

test("orphans are settled row by row: rejected ones delay no other and are logged once", async () => {
  await pgTask.stop();
  const done = await leftBehind("INSERT INTO effect VALUES ('again')", { label: "left", repeat: "1 hour" }, true);
  const refused = await leftBehind("SELECT 1", { data: "refused", group: "shared" });
  const stopped = await leftBehind("SELECT 1", { data: "refused" }, true);
  const [behind = ""] = await tasks.insert({ input: "SELECT 2", group: "shared" });
  const free = await leftBehind("SELECT 3");
  const allow = await refusing("OLD.data = 'refused'");
  const from = pgTask.lines.length;
  await pgTask.start(configuration);
  const rows = await tasks.ended(done, behind, free);
  const [of = null, ...others] = rows;
  assert.equal(of?.state, "DONE");
  assert.match(of?.error ?? "", /^ERROR: {2}next run was not planned: duplicate key/);
  assert.equal(await children(done), 0);
  assert.deepEqual(
    others.map(({ output }) => output),
    ["2", "3"],
  );
  for (const id of [refused, stopped]) {
    await pgTask.logged((line) => line["id"] === id && line.msg.startsWith("rescue rejected"), from);
    assert.equal((await tasks.row(id)).state, "WORK");
  }
  await tasks.run("SELECT 4", { plan: new Date(Date.now() + 1_500).toISOString() });
  assert.deepEqual(stuck(from), []);
  assert.equal(saidOf(refused, from).length, 1);
  // pg-task can also be stopped in this state.
  await pgTask.stop();
  assert.deepEqual(stuck(from), []);
  await allow();
  await pgTask.start(configuration);
  assert.equal((await tasks.end(refused)).output, "1");
  assert.equal((await tasks.end(stopped)).state, "DONE");
  assert.equal((await client.query("SELECT FROM effect")).rowCount, 0);
});

test("a row that may not expire delays no other of its group, and expires once it may", async () => {
  const allow = await refusing("NEW.state = 'GONE' AND NEW.data = 'stays'");
  const from = pgTask.lines.length;
  const old = { plan: "2001-01-01", active: "1 day", group: "gone" };
  const ids = await tasks.insert(
    { input: "SELECT 1", data: "stays", ...old },
    { input: "SELECT 1", data: "stays", ...old },
    { input: "SELECT 1", ...old },
    { input: "SELECT 1", group: "gone" },
  );
  const [first = "", second = "", late = "", free = ""] = ids;
  assert.deepEqual(statesOf(await tasks.ended(late, free)), ["GONE", "DONE"]);
  assert.equal((await tasks.row(first)).state, "PLAN");
  await pgTask.logged((line) => line["id"] === second, from);
  assert.deepEqual(stuck(from), []);
  await allow();
  await tasks.until([first, second], ({ state }) => state === "GONE");
  assert.equal(saidOf(first, from).length, 1);
});

test("a row that may not be marked due delays no other", async () => {
  const allow = await refusing("NEW.ready AND NEW.data = 'early'");
  const from = pgTask.lines.length;
  const plan = new Date(Date.now() + 300).toISOString();
  const ids = await tasks.insert(
    { input: "SELECT 1", data: "early", plan },
    { input: "SELECT 2", plan },
    { input: "SELECT 3", plan: new Date(Date.now() + 700).toISOString() },
  );
  const [early = "", ...others] = ids;
  assert.deepEqual(
    (await tasks.ended(...others)).map(({ output }) => output),
    ["2", "3"],
  );
  await pgTask.logged((line) => line["id"] === early, from);
  await allow();
  assert.equal((await tasks.end(early)).output, "1");
  assert.equal(saidOf(early, from).length, 1);
  assert.deepEqual(stuck(from), []);
});

test("a row that rejects its group's pause does not affect the run before it", async () => {
  const allow = await refusing("NEW.plan <> OLD.plan AND NEW.data = 'unmoved'");
  const from = pgTask.lines.length;
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const paused = { group: "pause", max: -3_600_000 };
  const [first = "", unmoved = "", moved = ""] = await tasks.insert(
    { input: "SELECT 1 FROM pg_advisory_xact_lock(1)", ...paused },
    { input: "SELECT 2", data: "unmoved", ...paused },
    { input: "SELECT 3", ...paused },
  );
  await tasks.running(first);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const run = await tasks.end(first);
  await tasks.until([moved], ({ plan }) => plan > (run.stop ?? ""));
  await pgTask.logged((line) => line["id"] === unmoved, from);
  assert.equal((await tasks.row(unmoved)).state, "PLAN");
  await allow();
  const row = only(await tasks.until([unmoved], ({ plan }) => plan > (run.stop ?? "")));
  assert.equal(row.start, null);
  assert.deepEqual(stuck(from), []);
});

test("error says why the successor was rejected, not what was rejected before", async () => {
  const allow = await refusing("NEW.plan <> OLD.plan AND NEW.data = 'unmoved'");
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const paused = { group: "pause", max: -3_600_000 };
  const [first = ""] = await tasks.insert(
    {
      input: "SELECT 1 FROM pg_advisory_xact_lock(1)",
      late_label: "twice",
      repeat: "1 hour",
      ...paused,
    },
    { input: "SELECT 2", data: "unmoved", ...paused },
  );
  await tasks.running(first);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const { state, error } = await tasks.end(first);
  assert.equal(state, "DONE");
  assert.match(error ?? "", /^ERROR: {2}next run was not planned: duplicate key/);
  await allow();
});

test("a row that may not be released delays no other, and no stop", async () => {
  const allow = await refusing("NEW.state = 'PLAN' AND NEW.data = 'kept'");
  const from = pgTask.lines.length;
  const [kept = "", other = ""] = await tasks.insert(
    { input: "SELECT pg_sleep(60)", data: "kept", group: "one" },
    { input: "SELECT pg_sleep(60)", group: "two" },
  );
  await tasks.sleeping(kept);
  await tasks.sleeping(other);
  await pgTask.stop();
  assert.deepEqual(stuck(from), []);
  assert.equal((await tasks.row(other)).state, "PLAN");
  assert.equal((await tasks.row(kept)).state, "WORK");
  assert.match(only(saidOf(kept, from)).msg, /^release rejected by the server/);
  await client.query("UPDATE task SET input = 'SELECT 1' WHERE id IN ($1, $2)", [kept, other]);
  await pgTask.start(configuration);
  assert.equal((await tasks.end(other)).output, "1");
  assert.equal((await tasks.row(kept)).state, "WORK");
  await allow();
  assert.equal((await tasks.end(kept)).output, "1");
});

test("a rejected result delays neither another one nor a stop, and is logged once", async () => {
  const allow = await refusing("NEW.state = 'DONE' AND NEW.data = 'unwritten'");
  const from = pgTask.lines.length;
  const [other = "", id = "", ...others] = await tasks.insert(
    { input: "SELECT 1", group: "a" },
    { input: "SELECT 6", group: "b", data: "unwritten" },
    { input: "SELECT 3", group: "c" },
    { input: "SELECT 4", group: "d" },
  );
  assert.deepEqual(
    (await tasks.ended(other, ...others)).map(({ output }) => output),
    ["1", "3", "4"],
  );
  await pgTask.logged((line) => line["id"] === id && line.msg.startsWith("result rejected"), from);
  // It is tried again in the meantime.
  await tasks.run("SELECT 5", { plan: new Date(Date.now() + 300).toISOString() });
  assert.equal(saidOf(id, from).length, 1);
  await pgTask.stop();
  assert.deepEqual(stuck(from), []);
  const said = await pgTask.logged((line) => line.msg.startsWith("results not written"), from);
  assert.equal(said["tasks"], 1);
  // TAKE if it was queued behind another task.
  assert.match((await tasks.row(id)).state, /^(TAKE|WORK)$/);
  await allow();
  await pgTask.start(configuration);
  assert.equal((await tasks.end(id)).output, "6");
});

test("an output that is too long for a user's index delays no other", async () => {
  await client.query("CREATE INDEX by_output ON task (output)");
  const from = pgTask.lines.length;
  const [id = ""] = await tasks.insert({
    input: "SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) AS i",
  });
  await pgTask.logged((line) => line["id"] === id && line.msg.startsWith("result rejected"), from);
  assert.equal((await tasks.run("SELECT 7")).output, "7");
  assert.deepEqual(stuck(from), []);
  await client.query("DROP INDEX by_output");
  assert.equal((await tasks.end(id)).output?.length, 32_000);
});

test("a run whose change to WORK is rejected ends as any other", async () => {
  // The task is queued behind another one of its group, and runs long enough for its state to be set to WORK.
  const allow = await refusing("OLD.state = 'TAKE' AND NEW.state = 'WORK' AND NEW.data = 'unshown'");
  const from = pgTask.lines.length;
  const ids = await tasks.insert(...Array.from({ length: 20 }, () => ({ input: "SELECT 1", group: "row" })));
  await tasks.ended(...ids);
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", data) SELECT 'SELECT pg_sleep(0.08)', 'row', 'unshown' FROM generate_series(1, 5) RETURNING id`,
  );
  const ended = await tasks.ended(...rows.map(({ id }) => id));
  assert.deepEqual([...new Set(ended.map(({ state }) => state))], ["DONE"]);
  assert.deepEqual(stuck(from), []);
  await allow();
});

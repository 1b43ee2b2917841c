import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, only, type NewTask } from "../support/tasks.js";

const { client, tasks } = await serve({}, "CREATE TABLE effect (what text); CREATE SEQUENCE caught");

const own = "WHERE id = current_setting('pg_task.id')::bigint";
const states = ["STOP", "FAIL", "GONE", "DONE"] as const;

const effects = (what: string) => tasks.value<number>("SELECT count(*)::integer FROM effect WHERE what = $1", [what]);

/** Inserts a task and waits until it is in `pg_sleep(60)`. */
async function underway(input: string, more: Omit<NewTask, "input"> = {}): Promise<string> {
  const [id = ""] = await tasks.insert({ input: `${input}; SELECT pg_sleep(60)`, ...more });
  await tasks.sleeping(id);
  return id;
}

for (const [way, begin, more] of [
  ["plain", "", {}],
  ["in a transaction of its own", "BEGIN;", {}],
  ["under REPEATABLE READ", "BEGIN ISOLATION LEVEL REPEATABLE READ;", {}],
  ["not atomic", "", { atomic: false }],
] as const) {
  for (const state of states) {
    test(`§8 a running task, ${way}, that is set to ${state} is cancelled without effect and keeps that state`, async () => {
      const what = `${state} ${way}`;
      const input = `${begin} INSERT INTO effect VALUES ('${what}')`;
      const id = await underway(input, { ...more, group: what, repeat: "10 years" });
      await tasks.set(id, `state = '${state}'`);
      const row = await tasks.released(id);
      assert.equal(row.state, state);
      assert.ok((row.pid ?? 0) > 0);
      // The next task of the group starts only after the run has ended.
      assert.equal((await tasks.run("SELECT 1", { group: what })).state, "DONE");
      assert.deepEqual([(await tasks.row(id)).state, await effects(what)], [state, 0]);
      assert.deepEqual(await tasks.rows("SELECT FROM task WHERE parent = $1", [id]), []);
    });
  }

  test(`§8 a running task, ${way}, that is set to PLAN runs again, and has its effect once`, async () => {
    const what = `PLAN ${way}`;
    const id = await underway(`${begin} INSERT INTO effect VALUES ('${what}')`, { ...more, group: what });
    await tasks.set(id, `state = 'PLAN', input = replace(input, 'SELECT pg_sleep(60)', 'SELECT 1')`);
    const [row] = await tasks.ended(id);
    assert.deepEqual([row?.state, row?.error, await effects(what)], ["DONE", null, 1]);
  });
}

test("§8 columns written along with the state are kept, and DONE and GONE get no error", async () => {
  for (const state of states) {
    const bare = await underway("SELECT 1");
    await tasks.set(bare, `state = '${state}'`);
    const given = await underway("SELECT 1");
    await tasks.set(given, `state = '${state}', output = 'mine', error = 'why', stop = '2020-01-01'`);
    const { error, output } = await tasks.released(bare);
    if (state === "STOP" || state === "FAIL") {
      assert.match(error ?? "", /^ERROR: {2}canceling statement due to user request\n/);
    } else assert.deepEqual([error, output], [null, null]);
    const row = await tasks.released(given);
    assert.deepEqual([row.state, row.output, row.error, row.stop?.slice(0, 4)], [state, "mine", "why", "2020"]);
  }
});

test("§8 a running task that is planned for later is cancelled, and waits for its plan", async () => {
  const id = await underway("INSERT INTO effect VALUES ('later')", { group: "later" });
  await tasks.set(id, "state = 'PLAN', plan = '2100-01-01'");
  const row = await tasks.released(id);
  assert.deepEqual([row.state, row.pid, row.take, row.start, row.error], ["PLAN", null, null, null, null]);
  assert.equal(await tasks.value("SELECT ready FROM task WHERE id = $1", [id]), false);
  await tasks.run("SELECT 1", { group: "later" });
  assert.deepEqual([(await tasks.row(id)).state, await effects("later")], ["PLAN", 0]);
});

test("§8 a task set to PLAN while it runs starts again only after its run has ended", async () => {
  await client.query("SELECT pg_advisory_lock(77)");
  const [id = ""] = await tasks.insert({
    input: `INSERT INTO effect VALUES ('stubborn');
      DO $$ BEGIN
        WHILE NOT pg_try_advisory_lock(77) LOOP
          BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM nextval('caught'); END;
        END LOOP;
      END $$`,
  });
  await tasks.running(id);
  await eventually(client, "SELECT FROM pg_stat_activity WHERE query LIKE '%stubborn%' AND wait_event = 'PgSleep'");
  await tasks.set(id, "state = 'PLAN'");
  await eventually(client, "SELECT FROM caught WHERE is_called");
  const row = await tasks.row(id);
  assert.deepEqual([row.state, row.owner === null], ["PLAN", false]);
  await client.query("SELECT pg_advisory_unlock(77)");
  const [ended] = await tasks.ended(id);
  assert.deepEqual([ended?.state, await effects("stubborn")], ["DONE", 1]);
  assert.notEqual(ended?.start, row.start);
});

test("§8 any other state keeps a queued task from running", async () => {
  for (const state of states) {
    const group = `waits ${state}`;
    for (let each = 0; each < 3; each += 1) await tasks.run("SELECT 1", { group });
    const inserted = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group },
      { input: "INSERT INTO effect VALUES ('waited')", group },
    );
    const [first = "", second = ""] = inserted;
    await tasks.sleeping(first);
    await tasks.set(second, `state = '${state}'`);
    await tasks.set(first, `state = '${state}'`);
    for (const id of inserted) assert.equal((await tasks.released(id)).state, state);
    await tasks.run("SELECT 1", { group });
    assert.equal((await tasks.row(second)).state, state);
  }
  assert.equal(await effects("waited"), 0);
});

for (const state of states) {
  test(`§6 a task that sets itself to ${state} keeps that state, its effect and its output`, async () => {
    const [id = ""] = await tasks.insert({
      input: `UPDATE task SET state = '${state}' ${own}; INSERT INTO effect VALUES ('own ${state}'); SELECT 'said'`,
      repeat: "10 years",
    });
    const rows = await tasks.until([id], (each) => each.state === state && each.owner === null);
    const { output, error, pid } = only(rows);
    assert.match(output ?? "", /said/);
    assert.deepEqual([error, (pid ?? 0) > 0, await effects(`own ${state}`)], [null, true, 1]);
    assert.deepEqual(await tasks.rows("SELECT FROM task WHERE parent = $1", [id]), []);
  });
}

/** Returns an input that sets the state of its own row and commits this, then waits for a lock, and then continues. */
const setsItself = (state: string): string =>
  `UPDATE task SET state = '${state}' ${own}; COMMIT; SELECT pg_advisory_lock(78); INSERT INTO effect VALUES ('committed ${state}')`;

test("§6 a state that a task sets itself and commits does not end its run", async () => {
  await client.query("SELECT pg_advisory_lock(78)");
  const ids = await tasks.insert(
    ...["STOP", "FAIL", "DONE"].map((state) => ({ input: setsItself(state), group: state })),
    ...["GONE"].map((state) => ({ input: setsItself(state), group: state, atomic: false })),
  );
  await eventually(
    client,
    "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 78 AND NOT granted",
    (rows) => rows.length === ids.length,
  );
  // When pg-task has cancelled this task, it has checked the states of the other tasks, too.
  const other = await underway("SELECT 1");
  await tasks.set(other, "state = 'STOP'");
  await tasks.released(other);
  await client.query("SELECT pg_advisory_unlock(78)");
  const rows = await tasks.until(ids, ({ owner }) => owner === null);
  assert.deepEqual(
    rows.map(({ state, error, pid }) => [state, error, (pid ?? 0) > 0]),
    ["STOP", "FAIL", "DONE", "GONE"].map((state) => [state, null, true]),
  );
  for (const { state } of rows) assert.equal(await effects(`committed ${state}`), 1, state);
});

test("§8 a state that another session sets after the task set its own ends the run", async () => {
  const [id = ""] = await tasks.insert({
    input: `UPDATE task SET state = 'DONE' ${own}; COMMIT; SELECT pg_sleep(60)`,
  });
  await eventually(
    client,
    `SELECT FROM task AS t JOIN pg_stat_activity AS a ON a.pid = -t.pid WHERE t.id = ${id} AND a.wait_event = 'PgSleep'`,
  );
  await tasks.set(id, "state = 'FAIL'");
  const { state, error, pid } = await tasks.released(id);
  assert.deepEqual([state, (pid ?? 0) > 0], ["FAIL", true]);
  assert.match(error ?? "", /canceling statement due to user request/);
});

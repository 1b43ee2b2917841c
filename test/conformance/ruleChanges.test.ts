import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { until, waitForRow } from "../support/tasks.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve();
const gate = await database.connect();

/** A rule whose times lie so far apart that none comes during the tests. */
const yearly = "0 0 1 1 *";

/** A query that waits until the gate is open, and returns a time far away. */
const gated = "SELECT timestamptz '2100-01-01Z' FROM pg_advisory_xact_lock_shared(5)";

interface Row {
  readonly state: string;
  readonly rule: string | null;
  readonly plan: string;
  readonly wait: number | null;
  readonly output: string | null;
}

const read = (id: string): Promise<Row> =>
  tasks.fields(id, "state::text AS state, rule, (plan AT TIME ZONE 'UTC')::text AS plan, wait, output");

/** Inserts a task whose query waits at the closed gate. The group keeps tasks of other tests from delaying it. */
async function insertComputing(group: string): Promise<string> {
  await gate.query("SELECT pg_advisory_lock(5)");
  const id = await tasks.add("SELECT 'input'", { rule: gated, group });
  await waitForRow(
    client,
    "SELECT FROM task JOIN pg_stat_activity AS a USING (pid) WHERE id = $1 AND task.state = 'WORK' AND a.wait_event = 'advisory'",
    [id],
  );
  return id;
}

const openGate = () => gate.query("SELECT pg_advisory_unlock(5)");

test("a plan that is moved while the query of the rule runs is used, and the answer is not", async () => {
  const id = await insertComputing("moved");
  await tasks.set(id, "plan = now()");
  const ended = await tasks.end(id);
  assert.deepEqual([ended.state, ended.output], ["DONE", "input"]);
  await openGate();
});

test("a schedule that is paused while its query runs stays paused", async () => {
  const id = await insertComputing("paused");
  await tasks.set(id, "plan = 'infinity'");
  await tasks.released(id);
  await openGate();
  const { state, plan, wait, output } = await read(id);
  assert.deepEqual({ state, plan, wait, output }, { state: "PLAN", plan: "infinity", wait: -1, output: null });
  await tasks.set(id, "plan = now()");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01Z' AND wait IS NULL", [id]);
});

test("a rule that replaces a query while the query runs is planned", async () => {
  const id = await insertComputing("replaced");
  await tasks.set(id, "rule = $1, zone = 'UTC'", [yearly]);
  await tasks.released(id);
  await openGate();
  const { state, plan, wait, output } = await read(id);
  assert.deepEqual({ state, wait, output }, { state: "PLAN", wait: null, output: null });
  assert.match(plan, /-01-01 00:00:00$/);
  assert.notEqual(plan, "2100-01-01 00:00:00");
});

test("a task whose query is removed while it runs is an ordinary task", async () => {
  const id = await insertComputing("removed");
  await tasks.set(id, "rule = NULL");
  const ended = await tasks.end(id);
  assert.deepEqual([ended.state, ended.output, (await read(id)).wait], ["DONE", "input", null]);
  await openGate();
});

test("a task that failed because of its query runs the query again when it is set to PLAN", async () => {
  await client.query("CREATE TABLE answer (at timestamptz)");
  const first = await tasks.run("SELECT 'input'", { rule: "SELECT 1/count(*) * now() FROM answer" });
  assert.match(first.error ?? "", /operator does not exist/);
  const rule = "SELECT timestamptz '2100-01-01Z' + interval '1 s' / count(*) FROM answer";
  const { id, error } = await tasks.run("SELECT 'input'", { rule });
  assert.match(error ?? "", /division by zero/);
  await client.query("INSERT INTO answer VALUES (now())");
  await tasks.set(id, "state = 'PLAN', plan = now()");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01 00:00:01Z' AND state = 'PLAN'", [id]);
});

test("the first time that a query returns may be in the past", async () => {
  const rule = `SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() - interval '10 minutes' END`;
  assert.equal((await tasks.run("SELECT 'input'", { rule })).state, "DONE");
});

test("a recurrence rule that is set during a run begins then", async () => {
  const id = await tasks.add("SELECT pg_sleep(60)", { group: "running" });
  await tasks.sleeping(id);
  await tasks.set(id, "rule = 'FREQ=DAILY;BYHOUR=0;BYMINUTE=0;BYSECOND=0', zone = 'UTC'");
  const { rule } = await read(id);
  assert.match(rule ?? "", /^DTSTART;TZID=UTC:\d{8}T\d{6}\nRRULE:FREQ=DAILY;BYHOUR=0;BYMINUTE=0;BYSECOND=0$/);
  await client.query("SELECT pg_cancel_backend(pid) FROM task WHERE id = $1", [id]);
  const [next] = await until(
    client,
    `SELECT rule, plan = (date_trunc('day', now() AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC' AS midnight
     FROM task WHERE parent = ${id}`,
    (rows) => rows.length > 0,
  );
  assert.deepEqual(next, { rule, midnight: true });
});

test("a paused schedule stays paused when its rule is changed", async () => {
  for (const [rule, changed] of [
    [yearly, "0 0 2 1 *"],
    [yearly, "FREQ=YEARLY"],
    ["SELECT timestamptz '2100-01-01Z'", "SELECT timestamptz '2100-01-02Z'"],
  ] as const) {
    const id = await tasks.add("SELECT 1", { rule, plan: "2099-01-01Z" });
    await tasks.set(id, "plan = 'infinity'");
    await tasks.set(id, "rule = $1", [changed]);
    assert.equal((await read(id)).plan, "infinity");
  }
});

test("a repeating task whose plan is set after a pause goes on from the new plan", async () => {
  const { id } = await tasks.run("SELECT 1", { repeat: "1 day", plan: "2000-01-01 03:00Z", active: "100 years" });
  const next = await tasks.value<string>("SELECT id FROM task WHERE parent = $1", [id]);
  await tasks.set(next, "plan = 'infinity', due = plan");
  await tasks.set(next, "plan = '2001-01-01 05:00Z'");
  await tasks.ended(next);
  assert.equal(
    await tasks.value(`SELECT (plan AT TIME ZONE 'UTC')::time::text FROM task WHERE parent = ${next}`),
    "05:00:00",
  );
});

test("a row whose end a user's trigger rejects stays owed until the trigger accepts it", async () => {
  await client.query(`
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'rows are kept'; END $$;
    CREATE TRIGGER keep BEFORE DELETE ON task FOR EACH ROW WHEN (OLD.data = 'kept') EXECUTE FUNCTION keep()`);
  const rule = "SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() END";
  const { id, state } = await tasks.run("SELECT 1", { rule, data: "kept" });
  assert.equal(state, "DONE");
  await waitForRow(
    client,
    "SELECT FROM task WHERE parent = $1 AND state = 'PLAN' AND error = 'ERROR:  next run was not planned: rows are kept'",
    [id],
  );
  await client.query("DROP TRIGGER keep ON task");
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE parent = $1)", [id]);
});

test("a query that closes the parentheses around it cannot keep its row from ending", async () => {
  const rule = "SELECT now())::timestamptz) #>> '{}', ''); SELECT concat('x', to_json((now()";
  assert.equal((await tasks.run("SELECT 1", { rule })).state, "FAIL");
});

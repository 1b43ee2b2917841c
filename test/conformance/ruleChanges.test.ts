import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { until, only, waitForRow } from "../support/tasks.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve();
const gate = await database.connect();

/** A rule whose times lie so far apart that none comes during the tests. */
const yearly = "0 0 1 1 *";

/** A query that waits until the gate is open, and returns a time far away. */
const gated = "SELECT timestamptz '2100-01-01Z' FROM pg_advisory_xact_lock_shared(5)";

interface Row {
  readonly id: string;
  readonly state: string;
  readonly rule: string | null;
  readonly plan: string;
  readonly wait: number | null;
  readonly due: string | null;
  readonly output: string | null;
  readonly error: string | null;
}

const read = async (id: string): Promise<Row> =>
  only(
    (
      await client.query<Row>(
        `SELECT id, state::text AS state, rule, (plan AT TIME ZONE 'UTC')::text AS plan, wait, due, output, error
         FROM task WHERE id = $1`,
        [id],
      )
    ).rows,
  );

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
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  const ended = await tasks.end(id);
  assert.deepEqual([ended.state, ended.output], ["DONE", "input"]);
  await openGate();
});

test("a schedule that is paused while its query runs stays paused", async () => {
  const id = await insertComputing("paused");
  await client.query("UPDATE task SET plan = 'infinity' WHERE id = $1", [id]);
  await tasks.released(id);
  await openGate();
  const { state, plan, wait, output } = await read(id);
  assert.deepEqual({ state, plan, wait, output }, { state: "PLAN", plan: "infinity", wait: -1, output: null });
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01Z' AND wait IS NULL", [id]);
});

test("a rule that replaces a query while the query runs is planned", async () => {
  const id = await insertComputing("replaced");
  await client.query("UPDATE task SET rule = $2, zone = 'UTC' WHERE id = $1", [id, yearly]);
  await tasks.released(id);
  await openGate();
  const { state, plan, wait, output } = await read(id);
  assert.deepEqual({ state, wait, output }, { state: "PLAN", wait: null, output: null });
  assert.match(plan, /-01-01 00:00:00$/);
  assert.notEqual(plan, "2100-01-01 00:00:00");
});

test("a task whose query is removed while it runs is an ordinary task", async () => {
  const id = await insertComputing("removed");
  await client.query("UPDATE task SET rule = NULL WHERE id = $1", [id]);
  const ended = await tasks.end(id);
  assert.deepEqual([ended.state, ended.output, (await read(id)).wait], ["DONE", "input", null]);
  await openGate();
});

test("a task that failed because of its query runs the query again when it is set to PLAN", async () => {
  await client.query("CREATE TABLE answer (at timestamptz)");
  const [id = ""] = await tasks.insert({ input: "SELECT 'input'", rule: "SELECT 1/count(*) * now() FROM answer" });
  assert.match((await tasks.end(id)).error ?? "", /operator does not exist/);
  const [second = ""] = await tasks.insert({
    input: "SELECT 'input'",
    rule: "SELECT timestamptz '2100-01-01Z' + interval '1 s' / count(*) FROM answer",
  });
  assert.match((await tasks.end(second)).error ?? "", /division by zero/);
  await client.query("INSERT INTO answer VALUES (now())");
  await client.query("UPDATE task SET state = 'PLAN', plan = now() WHERE id = $1", [second]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01 00:00:01Z' AND state = 'PLAN'", [
    second,
  ]);
});

test("the first time that a query returns may be in the past", async () => {
  const rule = `SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() - interval '10 minutes' END`;
  const [id = ""] = await tasks.insert({ input: "SELECT 'input'", rule });
  assert.equal((await tasks.end(id)).state, "DONE");
});

test("a recurrence rule that is set during a run begins then", async () => {
  const id = await tasks.add("SELECT pg_sleep(60)", { group: "running" });
  await tasks.sleeping(id);
  await client.query("UPDATE task SET rule = 'FREQ=DAILY;BYHOUR=0;BYMINUTE=0;BYSECOND=0', zone = 'UTC' WHERE id = $1", [
    id,
  ]);
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
  const changes: readonly (readonly [rule: string, changed: string])[] = [
    [yearly, "0 0 2 1 *"],
    [yearly, "FREQ=YEARLY"],
    ["SELECT timestamptz '2100-01-01Z'", "SELECT timestamptz '2100-01-02Z'"],
  ];
  for (const [rule, changed] of changes) {
    const [id = ""] = await tasks.insert({ input: "SELECT 1", rule, plan: "2099-01-01Z" });
    await client.query("UPDATE task SET plan = 'infinity' WHERE id = $1", [id]);
    await client.query("UPDATE task SET rule = $2 WHERE id = $1", [id, changed]);
    assert.equal((await read(id)).plan, "infinity");
  }
});

test("a repeating task whose plan is set after a pause goes on from the new plan", async () => {
  const id = await tasks.add("SELECT 1", {
    repeat: "1 day",
    plan: "2000-01-01 03:00Z",
    active: "100 years",
    catchup: false,
    max: 0,
    group: "off",
  });
  await tasks.ended(id);
  const { rows } = await client.query<{ id: string }>("SELECT id FROM task WHERE parent = $1", [id]);
  const next = only(rows).id;
  await client.query("UPDATE task SET plan = 'infinity', due = plan WHERE id = $1", [next]);
  await client.query("UPDATE task SET plan = '2001-01-01 05:00Z' WHERE id = $1", [next]);
  await tasks.ended(next);
  assert.equal(
    await tasks.value("SELECT (plan AT TIME ZONE 'UTC')::time::text AS at FROM task WHERE parent = $1", [next]),
    "05:00:00",
  );
});

test("a row whose end a user's trigger rejects stays owed until the trigger accepts it", async () => {
  await client.query(`
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'rows are kept'; END $$;
    CREATE TRIGGER keep BEFORE DELETE ON task FOR EACH ROW WHEN (OLD.data = 'kept') EXECUTE FUNCTION keep()`);
  const rule = "SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() END";
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule, data: "kept" });
  assert.equal((await tasks.end(id)).state, "DONE");
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
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule });
  assert.equal((await tasks.end(id)).state, "FAIL");
});

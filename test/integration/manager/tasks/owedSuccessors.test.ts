import assert from "node:assert/strict";
import { countOwed } from "../../../../src/manager/schema/owedTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Schedule } from "../../../../src/tasks/queries/schedules.js";
import { cli } from "../../../support/cli.js";
import { test } from "../../../support/limitedTest.js";
import { statesOf, waitForRow } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const options = { "pg_task.sleep": 30, "pg_conf.grace": 300 };
const { pgTask, database, client, tasks } = await serve(
  options,
  `
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'queue is full' USING ERRCODE = 'UR001'; END $$;
  CREATE FUNCTION unqualified() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM count(*) FROM hidden; RETURN NEW; END $$`,
);
const configuration = { url: database.url, ...options };

const run = (...args: string[]) => cli(args, { env: { DATABASE_URL: database.url } });

/** Whenever the manager tries to plan an owed run, it locks the row, and commands ask to try again. */
async function runUnlocked(...args: string[]): ReturnType<typeof run> {
  const result = await run(...args);
  return /row locked/.test(result.stdout + result.stderr) ? await runUnlocked(...args) : result;
}

const note = "ERROR:  next run was not planned: ";

/** Makes the server refuse all successors until the returned function is called. */
async function refuseSuccessors(call = "refuse()"): Promise<() => Promise<void>> {
  await client.query(
    `CREATE TRIGGER refuse BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION ${call}`,
  );
  return async () => void (await client.query("DROP TRIGGER refuse ON task"));
}

const successor = (id: string) =>
  waitForRow<{ id: string; later: boolean }>(client, "SELECT id, plan > now() AS later FROM task WHERE parent = $1", [
    id,
  ]);

/** Waits until nothing is owed, and returns how many successors the task has. */
async function successors(id: string): Promise<number> {
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
  const { rows } = await client.query("SELECT FROM task WHERE parent = $1", [id]);
  return rows.length;
}

for (const call of ["refuse()", "unqualified()"]) {
  test(`schedules go on after ${call} has refused their successors`, async () => {
    const from = pgTask.lines.length;
    const allow = await refuseSuccessors(call);
    const ids = await tasks.insert(
      { input: "SELECT 1", rule: "@yearly", zone: "UTC", plan: "infinity" },
      { input: "SELECT 1/0", repeat: "1 hour" },
      { input: "SELECT 1", repeat: "1 hour", plan: "2001-01-01", active: "1 day" },
      { input: "SELECT 1 WHERE false", repeat: "1 hour", delete: true },
      { input: "VALUES (1)", rule: "SELECT now() + interval '1 day'", plan: "infinity" },
    );
    await client.query("UPDATE task SET plan = now(), wait = NULL WHERE plan = 'infinity'");
    const ended = await tasks.ended(...ids);
    assert.deepEqual(statesOf(ended), ["DONE", "FAIL", "GONE", "DONE", "DONE"]);
    for (const { id, error } of ended) {
      assert.ok((error ?? "").includes(note), error ?? "");
      const line = await pgTask.logged((each) => each["id"] === id && each.level === "error", from);
      assert.equal(line.msg, "next run rejected by the server, retrying");
    }
    await allow();
    // The query of the last one may have run by now.
    for (const id of ids.slice(0, 4)) assert.equal((await successor(id)).later, true);
    for (const id of ids) assert.equal(await successors(id), 1);
    const { rows } = await client.query(`SELECT id::text, error FROM task WHERE id = ANY ($1) ORDER BY id`, [ids]);
    // The row with `delete` is deleted as soon as it owes nothing.
    assert.deepEqual(
      rows.map(({ id }) => id),
      ids.filter((id) => id !== ids[3]),
    );
    for (const { error } of rows) assert.doesNotMatch(String(error), /next run/);
    assert.match(rows[1]?.["error"], /^ERROR: {2}division by zero/);
    assert.match(rows[2]?.["error"], /^ERROR: {2}task not active$/);
    await client.query("DELETE FROM task");
  });
}

/** Makes a trigger refuse the first `times` writes. A sequence keeps counting when a transaction is rolled back. */
async function refuseSome(trigger: string, times: number): Promise<() => Promise<void>> {
  await client.query(`
    CREATE SEQUENCE refusals;
    CREATE FUNCTION refuse_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF nextval('public.refusals') <= ${times} THEN RAISE EXCEPTION 'queue is full'; END IF;
      RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_some ${trigger} EXECUTE FUNCTION refuse_some()`);
  return async () => void (await client.query("DROP FUNCTION refuse_some CASCADE; DROP SEQUENCE refusals"));
}

for (const times of [1, 2, 3, 4, 5, 6, 7, 8]) {
  test(`nothing says that a run is owed after the server has refused it ${times} times`, async () => {
    const allow = await refuseSome("BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL)", times);
    const [id = ""] = await tasks.insert({ input: "SELECT 1/0", repeat: "1 hour" });
    await successor(id);
    assert.equal(await successors(id), 1);
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND error !~ 'next run'", [id]);
    await allow();
    await client.query("DELETE FROM task");
  });
}

test("many successors that are refused for good do not keep another one from being planned", async () => {
  await client.query("ALTER TABLE task ADD COLUMN once text UNIQUE");
  const allow = await refuseSuccessors();
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 hour" });
  await tasks.ended(id);
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, repeat, once) SELECT 'SELECT 1', '1 hour', n::text FROM generate_series(1, 45) AS n RETURNING id::text AS id",
  );
  await tasks.ended(...rows.map((row) => row.id));
  await pgTask.stop();
  await allow();
  const from = pgTask.lines.length;
  await pgTask.start(configuration);
  // The oldest is tried after all others, which are refused because of the unique column.
  assert.equal((await successor(id)).later, true);
  for (const row of rows) await pgTask.logged((line) => line["id"] === row.id && line.level === "error", from);
  assert.equal((await client.query("SELECT FROM task WHERE parent = $1", [id])).rows.length, 1);
  await client.query("DELETE FROM task");
  await client.query("ALTER TABLE task DROP COLUMN once");
});

test("a sequence behind the ids is set forward, and the successor takes the next free id", async () => {
  const from = pgTask.lines.length;
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 hour", plan: "infinity" });
  await client.query(
    "INSERT INTO task (id, input, plan) SELECT $1::bigint + i, 'SELECT 2', 'infinity' FROM generate_series(1, 50) AS i",
    [id],
  );
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  assert.equal((await successor(id)).id, String(Number(id) + 51));
  assert.equal(await successors(id), 1);
  const line = await pgTask.logged(({ msg }) => msg === "sequence was behind the ids of the table, set forward", from);
  assert.deepEqual([line["sequence"], line["to"]], ["public.task_id_seq", String(Number(id) + 50)]);
  await client.query("DELETE FROM task; SELECT setval('task_id_seq', 1, false)");
  await client.query("INSERT INTO task (id, input, plan) VALUES (9000, 'SELECT 2', 'infinity')");
  await pgTask.stop();
  await pgTask.start(configuration);
  await pgTask.logged(
    ({ msg, to }) => msg === "sequence was behind the ids of the table, set forward" && to === "9000",
    from,
  );
  const [next] = await tasks.insert({ input: "SELECT 1" });
  assert.equal(next, "9001");
  await client.query("DELETE FROM task");
});

test("a sequence at its end delays schedules, but does not end them", async () => {
  await client.query("ALTER SEQUENCE task_id_seq MAXVALUE 10000; SELECT setval('task_id_seq', 9999)");
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 hour" });
  const [row] = await tasks.ended(id);
  assert.match(row?.error ?? "", /next run was not planned: nextval: reached maximum value/);
  await client.query("ALTER SEQUENCE task_id_seq NO MAXVALUE");
  await successor(id);
  await client.query("DELETE FROM task");
});

test("list --schedules and doctor name an owed run, and the commands act on it", async () => {
  const allow = await refuseSuccessors();
  const [again = "", stopped = ""] = await tasks.insert(
    { input: "SELECT 1", rule: "@yearly", zone: "UTC", plan: "infinity" },
    { input: "SELECT 1", repeat: "1 hour" },
  );
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [again]);
  await tasks.ended(again, stopped);
  const { schedules } = JSON.parse((await run("list", "--schedules", "--json")).stdout);
  const listed = schedules.toSorted((a: Schedule, b: Schedule) => Number(a.id) - Number(b.id));
  assert.deepEqual(
    listed.map(({ id, state, plan, next, owed, last }: Schedule) => [id, state, plan, next, owed, last[0]?.id]),
    [again, stopped].map((id) => [id, "DONE", null, [], "queue is full", id]),
  );
  const doctor = await run("doctor");
  assert.match(doctor.stdout, new RegExp(`the next run of schedule ${again} could not be planned: queue is full`));
  const why = await run("why", again, "--json");
  const [reason] = JSON.parse(why.stdout).reasons;
  assert.match(
    reason.text,
    /^it ran without error and ended at \S+; its next run has been owed since then, because it could not be planned: queue is full$/,
  );
  assert.match(reason.remedy, new RegExp(`^change what refuses it, .*pg-task retry ${again} `));
  const { rows: view } = await client.query(
    "SELECT id, state, plan, next, owed, last_id, last_state FROM task_schedules ORDER BY id",
  );
  assert.deepEqual(
    view,
    [again, stopped].map((id) => ({
      id,
      state: "DONE",
      plan: null,
      next: [],
      owed: "queue is full",
      last_id: id,
      last_state: "DONE",
    })),
  );
  assert.equal(await countOwed(client, taskTable("public", "task")), 2);
  const paused = await runUnlocked("pause", "--schedule", again);
  assert.match(paused.stdout + paused.stderr, /its next run could not be planned yet/);
  await run("prune", "--older", "0 seconds", "--yes");
  assert.equal((await client.query("SELECT FROM task")).rows.length, 2);
  await runUnlocked("stop", stopped);
  await runUnlocked("retry", again);
  await allow();
  await successor(again);
  assert.equal(await successors(again), 1);
  assert.equal(await successors(stopped), 0);
  await client.query("DELETE FROM task");
});

test("a schedule whose zone has vanished stays listed, and goes on with another zone", async () => {
  const from = pgTask.lines.length;
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "@yearly", zone: "UTC", plan: "infinity" });
  await client.query(`BEGIN; SET LOCAL pgtask.manager = 'on'`);
  await client.query("UPDATE task SET zone = 'Europe/Atlantis', plan = now(), ready = true WHERE id = $1", [id]);
  await client.query("COMMIT; SELECT pg_notify('pg_task_' || 'task'::regclass::oid, '')");
  await tasks.ended(id);
  const reason = 'time zone "Europe/Atlantis" not recognized';
  const line = await pgTask.logged((each) => each["id"] === id && each.level === "error", from);
  assert.ok(String(line["reason"]).startsWith(reason), String(line["reason"]));
  const { schedules } = JSON.parse((await run("list", "--schedules", "--json")).stdout);
  assert.deepEqual(
    schedules.map(({ owed, last }: Schedule) => [owed, last[0]?.state]),
    [[reason, "DONE"]],
  );
  assert.match((await run("doctor")).stdout, new RegExp(`schedule ${id} could not be planned: ${reason}`));
  await client.query("UPDATE task SET zone = 'Europe/Berlin' WHERE id = $1", [id]);
  assert.equal((await successor(id)).later, true);
  await client.query("DELETE FROM task");
});

test("retry, stop and delete settle what a row owes", async () => {
  const allow = await refuseSuccessors();
  const [again = "", stopped = "", deleted = ""] = await tasks.insert(
    { input: "SELECT 1", repeat: "1 hour" },
    { input: "SELECT 1", repeat: "1 hour" },
    { input: "SELECT 1", repeat: "1 hour", keep: "1 second" },
  );
  await tasks.ended(again, stopped, deleted);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  await client.query("DELETE FROM task WHERE id = $1", [deleted]);
  await client.query("UPDATE task SET state = 'PLAN', plan = now() + interval '1 hour' WHERE id = $1", [again]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
  await allow();
  const { rows } = await client.query("SELECT id::text, state::text FROM task ORDER BY id");
  assert.deepEqual(rows, [
    { id: again, state: "PLAN" },
    { id: stopped, state: "STOP" },
  ]);
  await client.query("DELETE FROM task");
});

test("a row whose keep is over stays as long as it owes its successor", async () => {
  const allow = await refuseSuccessors();
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 hour", keep: "1 millisecond" });
  const [other = ""] = await tasks.insert({ input: "SELECT 1", keep: "1 millisecond" });
  await waitForRow(client, "SELECT FROM task_owed WHERE task = $1", [id]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE id = $1)", [other]);
  assert.equal((await client.query("SELECT FROM task WHERE id = $1", [id])).rows.length, 1);
  await allow();
  await successor(id);
  await client.query("DELETE FROM task");
});

/** Makes the server refuse to write what the query of a rule has returned, `times` times. */
const refuseAnswers = (times: number): Promise<() => Promise<void>> =>
  refuseSome(
    "BEFORE UPDATE ON task FOR EACH ROW WHEN (OLD.wait < 0 AND OLD.owner IS NOT NULL AND NEW.owner IS NULL)",
    times,
  );

for (const times of [1, 2, 3, 4, 6]) {
  test(`a schedule goes on after the server has refused the answer of its query ${times} times`, async () => {
    const allow = await refuseAnswers(times);
    const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "SELECT timestamptz '2100-01-01Z'" });
    await waitForRow(
      client,
      "SELECT FROM task WHERE id = $1 AND state = 'PLAN' AND plan = '2100-01-01Z' AND wait IS NULL AND due IS NULL AND error IS NULL",
      [id],
    );
    await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
    await allow();
    await client.query("DELETE FROM task");
  });
}

/** Inserts schedules whose planned time a constraint refuses, and waits until they are owed. */
async function insertRefused(...keys: string[]): Promise<string[]> {
  await client.query("ALTER TABLE task ADD CONSTRAINT early CHECK (plan < '2100-01-01Z' OR rule IS NULL)");
  const rule = "SELECT timestamptz '2100-01-01Z'";
  const ids = await tasks.insert(...keys.map((key) => ({ input: "SELECT 1", rule, key })));
  for (const id of ids) {
    const found = `SELECT FROM task_owed JOIN task ON id = task WHERE id = $1 AND state = 'PLAN' AND ready IS NOT NULL AND error LIKE '${note}%early%'`;
    await waitForRow(client, found, [id]);
  }
  return ids;
}

const accept = () => client.query("ALTER TABLE task DROP CONSTRAINT early");

test("a query whose answer is refused for good stays owed, keeps its key, and goes on when it is accepted", async () => {
  const from = pgTask.lines.length;
  const ids = await insertRefused("one", "two");
  const [id = "", stopped = ""] = ids;
  const after = await tasks.insert({ input: "SELECT 1", after: `{${id}}` });
  const line = await pgTask.logged((each) => each["id"] === id && each.level === "error", from);
  assert.equal(line.msg, "next run rejected by the server, retrying");
  assert.match(String(line["reason"]), /violates check constraint "early"/);
  // While the queries run, they are not listed as owed.
  await client.query("INSERT INTO task_pause DEFAULT VALUES");
  for (const each of ids) await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [each]);
  const { schedules } = JSON.parse((await run("list", "--schedules", "--json")).stdout);
  assert.deepEqual(
    schedules.map((each: Schedule) => [each.id, each.plan, /"early"/.test(each.owed ?? "")]),
    ids.map((each) => [each, null, true]),
  );
  assert.match(
    (await run("doctor")).stdout,
    new RegExp(`the next run of schedule ${id} could not be planned: new row`),
  );
  assert.equal(await countOwed(client, taskTable("public", "task")), 2);
  await run("stop", stopped);
  await client.query("DELETE FROM task_pause");
  await pgTask.stop();
  await accept();
  await pgTask.start(configuration);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01Z' AND error IS NULL", [id]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
  const { rows } = await client.query("SELECT id::text, state::text FROM task ORDER BY id");
  assert.deepEqual(rows, [
    { id, state: "PLAN" },
    { id: stopped, state: "STOP" },
    { id: after[0], state: "PLAN" },
  ]);
  await client.query("DELETE FROM task");
});

for (const [title, code] of [
  ["a lock timeout", "55P03"],
  ["a serialization failure", "40001"],
  ["a deadlock", "40P01"],
  ["a cancellation", "57014"],
  ["the loss of a foreign connection", "08006"],
] as const) {
  test(`the query of a rule runs again after ${title}`, async () => {
    const from = pgTask.lines.length;
    await client.query(`
      CREATE TABLE gate ();
      CREATE FUNCTION answer() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
        IF pg_catalog.to_regclass('public.gate') IS NOT NULL THEN
          RAISE EXCEPTION 'not now' USING ERRCODE = '${code}';
        END IF;
        RETURN '2100-01-01Z';
      END $$`);
    const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "SELECT public.answer()", key: code });
    const line = await pgTask.logged((each) => each["id"] === id && each.level === "error", from);
    assert.equal(line.msg, "next run rejected by the server, retrying");
    assert.match(String(line["reason"]), /^not now/);
    await waitForRow(
      client,
      `SELECT FROM task_owed JOIN task ON id = task WHERE id = $1 AND state = 'PLAN' AND error LIKE '${note}not now%'`,
      [id],
    );
    await client.query("INSERT INTO task_pause DEFAULT VALUES");
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [id]);
    const { schedules } = JSON.parse((await run("list", "--schedules", "--json")).stdout);
    assert.deepEqual(
      schedules.map((each: Schedule) => [each.id, each.owed]),
      [[id, "not now"]],
    );
    await client.query("DELETE FROM task_pause; DROP TABLE gate");
    await waitForRow(
      client,
      "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01Z' AND wait IS NULL AND error IS NULL",
      [id],
    );
    await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
    await client.query("DELETE FROM task; DROP FUNCTION answer()");
  });
}

test("a query that fails for now, and whose failure the server refuses, runs again", async () => {
  const allow = await refuseAnswers(3);
  await client.query(`
    CREATE TABLE gate ();
    CREATE FUNCTION answer() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
      IF pg_catalog.to_regclass('public.gate') IS NOT NULL THEN RAISE EXCEPTION 'not now' USING ERRCODE = '55P03'; END IF;
      RETURN '2100-01-01Z';
    END $$`);
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "SELECT public.answer()" });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND error ~ 'not now'", [id]);
  await allow();
  await client.query("DROP TABLE gate");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND plan = '2100-01-01Z' AND error IS NULL", [id]);
  await client.query("DELETE FROM task; DROP FUNCTION answer()");
});

test("the log and doctor name a schedule that its query has ended", async () => {
  const from = pgTask.lines.length;
  const ids = await tasks.insert(
    { input: "SELECT 1", rule: "SELECT now() / 0" },
    { input: "SELECT 1", rule: "SELECT timestamptz 'infinity'" },
  );
  const ended = await tasks.ended(...ids);
  assert.deepEqual(statesOf(ended), ["FAIL", "FAIL"]);
  const reasons = [/^ERROR: {2}operator does not exist/, /^ERROR: {2}rule returned infinity, expected a finite time/];
  const { stdout } = await run("doctor");
  for (const [index, id] of ids.entries()) {
    const line = await pgTask.logged((each) => each["id"] === id && each.level === "warn", from);
    assert.equal(line.msg, "query of a rule failed, its schedule has ended");
    assert.match(String(line["reason"]), reasons[index] ?? /^$/);
    assert.match(stdout, new RegExp(`schedule ${id} has ended because of its rule, which is a query: ERROR: `));
  }
  await client.query("DELETE FROM task");
});

test("a plan that a user gives to a schedule whose query's answer is refused is used", async () => {
  const [id = ""] = await insertRefused("moved");
  await client.query("UPDATE task SET plan = '2090-01-01Z' WHERE id = $1", [id]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_owed)");
  const { rows } = await client.query("SELECT state::text, wait, error FROM task");
  assert.deepEqual(rows, [{ state: "PLAN", wait: null, error: null }]);
  await accept();
  await client.query("DELETE FROM task");
});

test("a schedule that a waiting task with the same key could not take over for a while is taken over", async () => {
  await client.query(
    "CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (OLD.data = 'heir') EXECUTE FUNCTION refuse()",
  );
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(5)");
  const rule = "SELECT timestamptz '2100-01-01Z' FROM pg_advisory_xact_lock_shared(5)";
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule, key: "taken" });
  await waitForRow(
    client,
    "SELECT FROM task JOIN pg_stat_activity AS a USING (pid) WHERE id = $1 AND a.wait_event = 'advisory'",
    [id],
  );
  const [heir = ""] = await tasks.insert({ input: "SELECT 1", key: "taken", data: "heir", plan: "2099-01-01Z" });
  await gate.query("SELECT pg_advisory_unlock(5)");
  await waitForRow(
    client,
    `SELECT FROM task JOIN task_owed ON task = id WHERE id = $1 AND state = 'GONE' AND error LIKE '%${note}queue is full'`,
    [id],
  );
  await client.query("DROP TRIGGER refuse ON task");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND rule IS NOT NULL AND plan = '2099-01-01Z'", [heir]);
  assert.equal((await client.query("SELECT FROM task_owed")).rows.length, 0);
  await client.query("DELETE FROM task");
});

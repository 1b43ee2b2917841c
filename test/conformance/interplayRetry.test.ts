import assert from "node:assert/strict";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { rowsOf, valueOf, until, type NewTask, newName, statesOf } from "../support/tasks.js";

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  `
  CREATE TABLE tried (task bigint, attempt integer, start timestamptz, stop timestamptz);
  CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.tried VALUES (NEW.id, coalesce(OLD.attempt, 0) + 1, NEW.start, NEW.stop); RETURN NULL; END $$;
  CREATE TRIGGER note AFTER UPDATE ON task FOR EACH ROW WHEN (OLD.state = 'WORK' AND NEW.state <> 'WORK') EXECUTE FUNCTION note()`,
);

/** Waits until the task waits for its next try. */
async function failedOnce(id: string): Promise<void> {
  await until(client, `SELECT FROM task WHERE id = ${id} AND state = 'PLAN' AND attempt = 1`);
}

/** Inserts a task that fails, and whose next try does not come during the tests. */
async function insertFailing(more: Omit<NewTask, "input"> = {}): Promise<string> {
  const id = await tasks.add("SELECT 1/0", { retry: 3, backoff: "20 min", ...more });
  await failedOnce(id);
  return id;
}

const conflict = "ON CONFLICT (key) WHERE key IS NOT NULL AND ready IS NOT NULL";

test("key: a task that waits for its next try holds its key, and ON CONFLICT changes that try", async () => {
  const key = newName();
  const id = await insertFailing({ key });
  await assert.rejects(tasks.add("SELECT 1", { key }), { code: "23505", constraint: "task_key_idx" });
  await client.query(
    `INSERT INTO task (input, key, "group") VALUES ('SELECT 2', $1, 'another group')
     ${conflict} DO UPDATE SET plan = excluded.plan, input = excluded.input`,
    [key],
  );
  const { state, output, group } = await tasks.end(id);
  assert.deepEqual([state, output, group], ["DONE", "2", key.replace(/\d+$/, (n) => String(Number(n) + 1))]);
});

test("key: if another task with it waits when a try fails, the task is FAIL at once, and the other one inherits its schedule", async () => {
  const key = newName();
  const more = { key, retry: 3, backoff: "1 ms", repeat: "1 day", args: "[1]" };
  const { id: first, open } = await tasks.held(more, "SELECT 1/0");
  const second = await tasks.add("SELECT 2", { key, plan: "2100-01-01Z", args: "[2]" });
  const then = await tasks.add("SELECT 3", { after: `{${first}}`, upon: "fail" });
  await open();
  const failed = await tasks.end(first);
  assert.equal(failed.state, "FAIL");
  assert.match(failed.error ?? "", new RegExp(`\\nDETAIL: {2}Task ${second} with the same key takes its place\\.$`));
  assert.equal((await tasks.end(then)).state, "DONE");
  for (const [id, args] of [
    [first, "[1]"],
    [second, "[2]"],
  ] as const)
    assert.ok(await tasks.holds(id, `attempt IS NULL AND repeat = '1 day' AND args = '${args}'`));
});

test("key: a task of the key that runs delays the next try until it has ended", async () => {
  const key = newName();
  const { wait, open } = await tasks.gate();
  const first = await insertFailing();
  const second = await tasks.add(wait, { key });
  await tasks.running(second);
  await client.query(`UPDATE task SET key = $1, input = 'SELECT 1', plan = now() WHERE id = ${first}`, [key]);
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(first)).state, "PLAN");
  await open();
  const [one, two] = await tasks.ended(first, second);
  assert.equal(one?.state, "DONE");
  assert.ok((one?.start ?? "") >= (two?.stop ?? "?"));
});

test("key: two steps of a chain cannot be inserted together with one key, because both would wait", async () => {
  const key = newName();
  await client.query("BEGIN");
  const first = await tasks.add("SELECT 1", { key });
  await assert.rejects(tasks.add("SELECT 2", { key, after: `{${first}}` }), { code: "23505" });
  await client.query("ROLLBACK");
});

test("key: a step that waits with the key of the step before it keeps that one from being tried again", async () => {
  const key = newName();
  const { id: first, open } = await tasks.held({ key, retry: 3, backoff: "1 ms" }, "SELECT 1/0");
  const second = await tasks.add("SELECT 2", { key, after: `{${first}}` });
  await open();
  const [one, two] = await tasks.ended(first, second);
  assert.match(one?.error ?? "", /takes its place\.$/);
  assert.equal(two?.error, `ERROR:  task ${first}, which it waits for, is FAIL`);
});

test("gap: each try is a start of its group, and other tasks of the group wait their gap after a failed try", async () => {
  const group = newName();
  const rows = await tasks.runTogether(
    { input: "SELECT 1/0", group, max: 9, retry: 2, backoff: "1 ms", gap: "0.2 s" },
    { input: "SELECT 1", group, max: 5, gap: "0.2 s" },
  );
  assert.deepEqual(statesOf(rows), ["FAIL", "DONE"]);
  const apart = await tasks.value<boolean[]>(
    `SELECT array_agg(start - before >= '0.2 s') FROM (SELECT start, lag(start) OVER (ORDER BY start) AS before
       FROM tried WHERE task = ANY ($1)) AS t WHERE before IS NOT NULL`,
    [rows.map(({ id }) => id)],
  );
  assert.deepEqual(apart, [true, true, true]);
});

test("pause: a try that becomes due in a paused group waits for the end of the pause", async () => {
  const group = newName();
  const id = await insertFailing({ group });
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
  await tasks.set(id, "plan = now(), input = 'SELECT 1'");
  await tasks.run("SELECT 1", { group: newName() });
  assert.equal((await tasks.row(id)).state, "PLAN");
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
  assert.equal((await tasks.end(id)).state, "DONE");
});

test("args: each try gets the same values, and a change counts from the next try", async () => {
  const again = await tasks.add("SELECT 1 / $1::integer", { args: "[0]", retry: 1, backoff: "1 ms" });
  const { state, error } = await tasks.end(again);
  assert.deepEqual([state, error?.split("\n")[0]], ["FAIL", "ERROR:  division by zero"]);
  const changed = await tasks.add("SELECT 10 / $1::integer", { args: "[0]", retry: 1, backoff: "20 min" });
  await failedOnce(changed);
  await tasks.set(changed, "args = '[5]', plan = now()");
  assert.equal((await tasks.end(changed)).output, "2");
});

test("timeout: it limits each try, and the pause between them does not count", async () => {
  const id = await tasks.add("SELECT pg_sleep(60)", { timeout: "100 ms", retry: 2, backoff: "300 ms" });
  assert.equal((await tasks.end(id)).state, "FAIL");
  const full = "SELECT array_agg(stop - start >= '100 ms') FROM tried WHERE task = $1";
  assert.deepEqual(await tasks.value(full, [id]), [true, true, true]);
});

test("pg_task.retry of a database applies to schedules, to their next runs and to tasks that wait for others", async () => {
  const name = identifier(database.target.database);
  await client.query(
    `ALTER DATABASE ${name} SET pg_task.retry = 2; ALTER DATABASE ${name} SET pg_task.backoff = '1 ms'`,
  );
  const producer = await database.connect();
  await client.query(`ALTER DATABASE ${name} RESET pg_task.retry; ALTER DATABASE ${name} RESET pg_task.backoff`);
  const first = await valueOf<string>(
    producer,
    `INSERT INTO task (input, "group", rule, zone, active, plan) VALUES ('SELECT 1/0', 'all', '0 0 1 1 *', 'UTC', '100 years', '2001-01-01Z') RETURNING id`,
  );
  const waiting = await rowsOf<{ id: string }>(
    producer,
    `INSERT INTO task (input, "group", after, upon) VALUES
       ('SELECT 2/0', 'all 2', '{${first}}', 'end'), ('SELECT 3', 'all 3', '{${first}}', 'done') RETURNING id`,
  );
  const ids = [first, ...waiting.map(({ id }) => id)];
  const [one, two, three] = await tasks.ended(...ids);
  assert.deepEqual([one?.state, two?.state, three?.state], ["FAIL", "FAIL", "GONE"]);
  assert.ok((two?.start ?? "") >= (one?.stop ?? "?"));
  const attempts = await tasks.value("SELECT array_agg(attempt ORDER BY id) FROM task WHERE id = ANY ($1)", [ids]);
  assert.deepEqual(attempts, [2, 2, null]);
  assert.ok(await tasks.successorHolds(first, "n.retry = 2 AND n.attempt IS NULL AND n.plan > now()"));
});

for (const [what, change, state] of [
  ["stopped", "UPDATE task SET state = 'STOP'", "STOP"],
  ["deleted", "DELETE FROM task", "deleted"],
  ["late", "UPDATE task SET plan = now() - interval '1 year'", "GONE"],
] as const) {
  test(`after: a task that is ${what} while it waits for its next try counts as not done`, async () => {
    const id = await insertFailing();
    const ids = [await tasks.add("SELECT 1", { after: `{${id}}` })];
    for (const upon of ["fail", "end"]) ids.push(await tasks.add("SELECT 1", { after: `{${id}}`, upon }));
    await until(client, `SELECT FROM task WHERE id IN (${ids.join()}) AND wait = 0`, (rows) => rows.length === 3);
    await client.query(`${change} WHERE id = ${id}`);
    const rows = await tasks.ended(...ids);
    assert.deepEqual(statesOf(rows), ["GONE", "DONE", "DONE"]);
    assert.equal(rows[0]?.error, `ERROR:  task ${id}, which it waits for, is ${state}`);
  });
}

test("after: a task that is tried again does not wait for the others again", async () => {
  const first = await tasks.run("SELECT 1", { group: newName() });
  const second = await tasks.add("SELECT 1/0", { after: `{${first.id}}`, retry: 2, backoff: "20 min" });
  await failedOnce(second);
  await tasks.set(first.id, "state = 'PLAN', plan = 'infinity'");
  await tasks.set(second, "plan = now(), input = 'SELECT 2'");
  assert.equal((await tasks.end(second)).output, "2");
});

test("after: when a task that failed is run again, and then those that were GONE because of it, the chain goes on", async () => {
  const first = await tasks.add("SELECT 1/0");
  const second = await tasks.add("SELECT 2", { after: `{${first}}` });
  const third = await tasks.add("SELECT 3", { after: `{${second}}` });
  assert.deepEqual(statesOf(await tasks.ended(first, second, third)), ["FAIL", "GONE", "GONE"]);
  // Alone, it waits for the end of the same task, which is still FAIL.
  await tasks.set(second, "state = 'PLAN', plan = now(), error = NULL");
  assert.equal((await tasks.end(second)).error, `ERROR:  task ${first}, which it waits for, is FAIL`);
  await client.query(`UPDATE task SET state = 'PLAN', plan = now(), error = NULL, input = 'SELECT 1' WHERE id = ${first};
    UPDATE task SET state = 'PLAN', plan = now(), error = NULL WHERE id IN (${second}, ${third})`);
  assert.deepEqual(
    (await tasks.until([first, second, third], ({ state, output }) => state === "DONE" && output !== null)).map(
      ({ output }) => output,
    ),
    ["1", "2", "3"],
  );
});

interface WaitingTry {
  readonly attempt: number;
  readonly error: string | null;
  readonly errors: number;
  readonly start: boolean;
  readonly due: string | null;
  readonly plan: string;
}

/** The row of a task that waits, with its times in UTC. */
async function tryOf(id: string): Promise<WaitingTry> {
  assert.equal((await tasks.row(id)).state, "PLAN");
  return await tasks.fields(
    id,
    `coalesce(attempt, 0) AS attempt, split_part(error, E'\\n', 1) AS error, coalesce(jsonb_array_length(errors), 0) AS errors,
     start IS NOT NULL OR stop IS NOT NULL OR pid IS NOT NULL OR output IS NOT NULL OR take IS NOT NULL AS start,
     (due AT TIME ZONE 'UTC')::text AS due, (plan AT TIME ZONE 'UTC')::text AS plan`,
  );
}

/** What a row shows that begins a run with all its tries. */
const fresh = { attempt: 0, error: null, errors: 0, start: false, due: null };

/** A schedule whose run of 2001 fails, and then waits for its next try. */
const yearlySchedule = { rule: "0 0 1 1 *", zone: "UTC", plan: "2001-01-01Z", active: "500 years" };

for (const [what, before, change, plan] of [
  ["another cron expression", yearlySchedule, "rule = '0 0 2 1 *'", /^\d+-01-02 00:00:00$/],
  ["another zone", yearlySchedule, "zone = 'Asia/Tokyo'", /^\d+-12-31 15:00:00$/],
  [
    "a recurrence rule",
    yearlySchedule,
    "rule = 'FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=4;BYHOUR=5;BYMINUTE=6;BYSECOND=7'",
    /^\d+-03-04 05:06:07$/,
  ],
  ["a rule that begins later", yearlySchedule, "rule = '0 0 2 1 *', plan = '2150-01-01Z'", /^2150-01-02 00:00:00$/],
  [
    "a rule instead of repeat",
    { repeat: "1 day" },
    "repeat = '0', rule = '0 0 2 1 *', zone = 'UTC'",
    /^\d+-01-02 00:00:00$/,
  ],
  [
    "repeat and plan instead of a rule",
    yearlySchedule,
    "rule = NULL, zone = NULL, repeat = '1 day', plan = '2150-01-01Z'",
    /^2150-01-01 00:00:00$/,
  ],
  [
    "another interval, and its plan",
    { repeat: "1 day" },
    "repeat = '2 days', plan = '2150-01-01Z'",
    /^2150-01-01 00:00:00$/,
  ],
  ["a later time of the same rule", yearlySchedule, "plan = '2150-01-01Z'", /^2150-01-01 00:00:00$/],
] as const) {
  test(`schedule: with ${what}, the next run has all its tries, and shows nothing of the failed one`, async () => {
    const id = await insertFailing(before);
    const { plan: retryPlan } = await tryOf(id);
    await tasks.set(id, change);
    const { plan: planned, ...row } = await tryOf(id);
    assert.deepEqual(row, fresh);
    assert.match(planned, plan);
    assert.notEqual(planned, retryPlan);
  });
}

test("schedule: with a query as its rule, the run at the query's time has all its tries", async () => {
  const id = await insertFailing(yearlySchedule);
  await tasks.set(id, "rule = 'SELECT timestamptz ''2150-01-01Z''', zone = NULL");
  await until(client, `SELECT FROM task WHERE id = ${id} AND plan = '2150-01-01Z'`);
  assert.deepEqual(await tryOf(id), { ...fresh, plan: "2150-01-01 00:00:00" });
});

test("schedule: one that is paused while it waits for a try, and goes on with a time of its rule, has all its tries", async () => {
  const id = await insertFailing(yearlySchedule);
  await tasks.set(id, "plan = 'infinity'");
  const paused = await tryOf(id);
  assert.deepEqual([paused.attempt, paused.due, paused.plan], [1, "2001-01-01 00:00:00", "infinity"]);
  await tasks.set(id, "plan = task_next(rule, zone)");
  const { plan, ...row } = await tryOf(id);
  assert.deepEqual(row, fresh);
  assert.match(plan, /^\d+-01-01 00:00:00$/);
});

for (const [what, change] of [
  ["another input", "input = 'SELECT 2/0'"],
  ["another interval", "repeat = '2 days'"],
  ["another plan", "plan = '2150-01-01Z'"],
  ["other options", "retry = 5, backoff = '1 s', catchup = true"],
] as const) {
  test(`schedule: ${what} changes the try that waits, and no tries are given back`, async () => {
    const id = await insertFailing({ repeat: "1 day", plan: "2001-01-01Z", active: "500 years" });
    const { plan, ...before } = await tryOf(id);
    await tasks.set(id, change);
    const { plan: planned, ...row } = await tryOf(id);
    assert.deepEqual(row, before);
    assert.deepEqual([row.attempt, row.due, row.error], [1, "2001-01-01 00:00:00", "ERROR:  division by zero"]);
    assert.equal(planned, what === "another plan" ? "2150-01-01 00:00:00" : plan);
  });
}

test("schedule: the run after a try whose input was changed has all its tries", async () => {
  const id = await insertFailing(yearlySchedule);
  await tasks.set(id, "input = 'SELECT 3', plan = now()");
  const { state, output } = await tasks.end(id);
  assert.deepEqual([state, output], ["DONE", "3"]);
  const next = await tasks.value<string>("SELECT id FROM task WHERE parent = $1", [id]);
  const { plan: _, ...row } = await tryOf(next);
  assert.deepEqual(row, fresh);
});

test("schedule: with an interval instead of its rule, the try is made, and the interval counts from the time of the run", async () => {
  const id = await insertFailing(yearlySchedule);
  const { plan, ...before } = await tryOf(id);
  await tasks.set(id, "rule = NULL, zone = NULL, repeat = '1 day'");
  assert.deepEqual(await tryOf(id), { plan, ...before });
  await tasks.set(id, "input = 'SELECT 4', plan = now()");
  assert.equal((await tasks.end(id)).output, "4");
  assert.ok(await tasks.successorHolds(id, "(n.plan AT TIME ZONE 'UTC')::time = '00:00'"));
});

test("schedule: a rule that is changed while a try runs counts after the last try", async () => {
  const { id, open } = await tasks.held({ ...yearlySchedule, retry: 1, backoff: "1 ms" }, "SELECT 1/0");
  await tasks.set(id, "rule = '0 0 2 1 *'");
  await open();
  assert.equal((await tasks.end(id)).state, "FAIL");
  assert.ok(await tasks.holds(id, "attempt = 1"));
  assert.ok(
    await tasks.successorHolds(id, "n.attempt IS NULL AND (n.plan AT TIME ZONE 'UTC')::text ~ '-01-02 00:00:00$'"),
  );
});

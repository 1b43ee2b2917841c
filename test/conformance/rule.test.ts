import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until, only, statesOf } from "../support/tasks.js";

const { client, tasks } = await serve({ "pg_task.zone": "Europe/Berlin" });

/** A rule whose times lie so far apart that none comes during the tests. */
const yearly = "0 0 1 1 *";

interface Schedule {
  readonly id: string;
  readonly state: string;
  readonly plan: string;
  readonly due: string | null;
  readonly error: string | null;
}

const select = (where: string): string =>
  `SELECT id, parent, rule, zone, state::text AS state, plan::text AS plan, due::text AS due, wait, error FROM task WHERE ${where}`;

const row = (id: string): Promise<Schedule> => tasks.fields(id, "plan::text AS plan, due::text AS due");

/** Waits for the only successor of a task. */
const successor = async (parent: string, more = "true"): Promise<Schedule> =>
  only(await until<Schedule>(client, select(`parent = ${parent} AND ${more}`), (rows) => rows.length > 0));

const next = (rule: string, zone: string, since = "now()"): string =>
  `public.task_next('${rule}', '${zone}', ${since})`;

/** A schedule whose first run is due. */
const due = { rule: yearly, zone: "UTC", plan: "2001-01-01Z", active: "1000 years" };

test("INSERT rounds the plan up to the first time of the rule", async () => {
  const insert = "INSERT INTO task (input, rule, zone, plan) VALUES ('SELECT 1', '30 2 * * *', $1, $2) RETURNING id";
  const since = "created - interval '1 microsecond'";
  const rounded = await tasks.value<string>(insert, ["Asia/Tokyo", new Date()]);
  assert.ok(await tasks.holds(rounded, `plan = ${next("30 2 * * *", "Asia/Tokyo", since)}`));
  const exact = await tasks.value<string>(insert, ["UTC", "2100-01-01 02:30Z"]);
  assert.ok(await tasks.holds(exact, "plan = '2100-01-01 02:30Z'"));
});

test("the zone comes from the file unless the row or the rule names one", async () => {
  for (const [columns, zone] of [
    [{ rule: yearly }, "Europe/Berlin"],
    [{ rule: yearly, zone: "Asia/Tokyo" }, "Asia/Tokyo"],
    [{ rule: "DTSTART;TZID=America/New_York:20300101T090000\nRRULE:FREQ=YEARLY" }, "America/New_York"],
  ] as const) {
    assert.ok(await tasks.holds(await tasks.add("SELECT 1", columns), `zone = '${zone}'`));
  }
});

/** Asserts that the task's only successor waits with the same schedule for its next time. */
async function assertGoesOn(id: string): Promise<void> {
  const again = await successor(id);
  assert.ok(await tasks.holds(again.id, `rule = '${yearly}' AND zone = 'UTC' AND state = 'PLAN' AND wait IS NULL`));
  assert.ok(await tasks.holds(again.id, `plan = ${next(yearly, "UTC")}`), again.plan);
}

for (const [outcome, input, active] of [
  ["DONE", "SELECT 1", "1000 years"],
  ["FAIL", "SELECT 1/0", "1000 years"],
  ["GONE", "SELECT 1", "1 second"],
] as const) {
  test(`a task that ends ${outcome} gets a successor at the next time`, async () => {
    const { id, state } = await tasks.run(input, { ...due, active });
    assert.equal(state, outcome);
    await assertGoesOn(id);
  });
}

test("a rule that has no more times ends with its last run", async () => {
  const rule = "DTSTART:20010101T000000Z\nRRULE:FREQ=DAILY;UNTIL=20010101T000000Z";
  const { id, state } = await tasks.run("SELECT 1", { ...due, rule, plan: "2000-01-01Z" });
  assert.equal(state, "DONE");
  assert.deepEqual(await tasks.rows(select(`parent = ${id}`)), []);
});

/** Waits until a schedule has made up for the times that it missed. Returns its rows. */
const chainOf = async (first: string): Promise<Schedule[]> =>
  await until<Schedule>(
    client,
    `WITH RECURSIVE run AS (
       SELECT t.* FROM task AS t WHERE id = ${first} UNION ALL SELECT t.* FROM task AS t JOIN run AS r ON t.parent = r.id
     ) SELECT id, state::text AS state, plan::text AS plan FROM run ORDER BY id`,
    (rows) => rows.at(-1)?.state === "PLAN" && Date.parse(rows.at(-1)?.plan ?? "") > Date.now(),
  );

test("catchup makes up for every time within active, and for no other", async () => {
  const since = new Date(Date.now() - 10 * 3_600_000).toISOString();
  const more = { rule: "0 * * * *", zone: "UTC", catchup: true, active: "3 hours", plan: since };
  const first = await tasks.add("SELECT 1", more);
  const chain = await chainOf(first);
  assert.equal(chain[0]?.state, "GONE");
  const made = chain.slice(1, -1);
  assert.ok(made.every(({ state }) => state === "DONE"));
  assert.ok(made.length >= 3 && made.length <= 4);
  const times = chain.slice(1).map(({ plan }) => Date.parse(plan));
  for (const [index, time] of times.slice(1).entries()) assert.equal(time - (times[index] ?? 0), 3_600_000);
});

test("catchup makes up for missed repetitions of an interval", async () => {
  const plan = new Date(Date.now() - 2.5 * 3_600_000).toISOString();
  const first = await tasks.add("SELECT 1", { repeat: "1 hour", catchup: true, active: "10 hours", plan });
  assert.deepEqual(statesOf(await chainOf(first)), ["DONE", "DONE", "DONE", "PLAN"]);
});

test("overlap plans the next run when this one starts", async () => {
  const id = await tasks.add("SELECT pg_sleep(60)", { ...due, overlap: true });
  await tasks.sleeping(id);
  await assertGoesOn(id);
  assert.ok(await tasks.holds(id, "rule IS NULL AND zone IS NULL"));
  await tasks.set(id, "state = 'STOP'");
  await tasks.released(id);
  assert.equal((await client.query(select(`parent = ${id}`))).rowCount, 1);
});

test("overlap runs a task beside itself if max allows it", async () => {
  const more = { rule: "* * * * * *", overlap: true, max: 1, group: "beside" };
  const first = await tasks.add("SELECT pg_sleep(60)", more);
  const second = await successor(first);
  await tasks.sleeping(first);
  await tasks.sleeping(second.id);
  await successor(second.id);
  await client.query(`UPDATE task SET state = 'STOP' WHERE "group" = 'beside'`);
  await until(client, `SELECT FROM task WHERE "group" = 'beside' AND owner IS NOT NULL`, (rows) => rows.length === 0);
});

test("a query as a rule plans each run, knowing how the last one ended", async () => {
  const rule = `SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() WHEN 'FAIL'
    THEN timestamptz '2100-01-01 00:00Z' + current_setting('pg_task.id')::integer * interval '1 second' END -- the end`;
  const { id, state } = await tasks.run("SELECT 1/0", { rule });
  assert.equal(state, "FAIL");
  const again = await successor(id, "wait IS NULL AND plan > now()");
  assert.deepEqual([again.state, again.due], ["PLAN", null]);
  assert.ok(await tasks.holds(again.id, `plan = timestamptz '2100-01-01 00:00Z' + ${id} * interval '1 second'`));
});

test("a query that returns null ends the schedule", async () => {
  const rule = "SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() END;\n";
  const { id, state } = await tasks.run("SELECT 1", { rule });
  assert.equal(state, "DONE");
  await until(client, select(`parent = ${id}`), (rows) => rows.length === 0);
  const ended = await tasks.run("SELECT 1", { rule: "SELECT now() WHERE false" });
  assert.deepEqual([ended.state, ended.error], ["GONE", "ERROR:  rule returned no time"]);
});

for (const [what, rule, error] of [
  ["returns several rows", "VALUES (now()), (now())", /more than one row returned/],
  ["returns several columns", "SELECT now(), now()", /subquery must return only one column/],
  ["returns no time", "SELECT 'soon'", /invalid input syntax for type timestamp with time zone/],
  ["returns an infinite time", "SELECT 'infinity'::timestamptz", /rule returned infinity, expected a finite time/],
  ["has an error", "SELECT nextval('task_id_seq') * now()", /operator does not exist/],
  ["writes", "WITH n AS (SELECT nextval('task_id_seq')) SELECT now() FROM n", /in a read-only transaction/],
] as const) {
  test(`the row becomes FAIL if its query ${what}`, async () => {
    const ended = await tasks.run("SELECT 1", { rule });
    assert.equal(ended.state, "FAIL");
    assert.match(ended.error ?? "", error);
    assert.deepEqual(await tasks.rows(select(`parent = ${ended.id}`)), []);
  });
}

test("the error of a query shows the query as it is in rule, and the output is empty", async () => {
  const rule = "SELECT now() +\n  (SELECT 'ä', nothing)::interval;";
  const ended = await tasks.run("SELECT 1", { rule });
  const statement = "STATEMENT:  SELECT now() +\n\t  (SELECT 'ä', nothing)::interval";
  assert.equal(ended.error, `ERROR:  column "nothing" does not exist at character 31\n${statement}`);
  assert.equal(ended.output, "");
});

test("the next row becomes FAIL if its query returns a time that is not later than the plan of the last run", async () => {
  const more = { rule: "SELECT timestamptz '2020-01-01Z'", active: "100 years" };
  const { id, state } = await tasks.run("SELECT 1", more);
  assert.equal(state, "DONE");
  const { error } = await successor(id, "state = 'FAIL'");
  assert.match(error ?? "", /^ERROR: {2}rule returned 2020-01-01T.*, expected a finite time later than 2020-01-01/);
});

test("the schedule goes on from a plan that its user moved", async () => {
  const id = await tasks.add("SELECT 1", { rule: yearly, zone: "UTC" });
  await tasks.set(id, "plan = now()");
  assert.equal((await tasks.end(id)).state, "DONE");
  await assertGoesOn(id);
});

test("a row planned for infinity keeps its place in the schedule", async () => {
  const id = await tasks.add("SELECT 1", { rule: yearly, zone: "UTC" });
  const { plan } = await row(id);
  await tasks.set(id, "plan = 'infinity'");
  assert.deepEqual(await row(id), { plan: "infinity", due: plan });
  await tasks.set(id, "plan = $1", [plan]);
  assert.deepEqual(await row(id), { plan, due: null });
});

test("a changed rule is planned anew", async () => {
  const id = await tasks.add("SELECT 1", { rule: yearly, zone: "UTC" });
  await tasks.set(id, "rule = '0 0 2 1 *'");
  assert.ok(await tasks.holds(id, `plan = ${next("0 0 2 1 *", "UTC")}`));
  await tasks.set(id, "zone = 'Asia/Tokyo'");
  assert.ok(await tasks.holds(id, `plan = ${next("0 0 2 1 *", "Asia/Tokyo")}`));
});

test("a pause of the group moves the plan, but not the schedule", async () => {
  const slow = { input: "SELECT 1", max: -86_400_000, group: "slow" };
  const [first = "", paused = ""] = await tasks.together(slow, { ...slow, ...due });
  await tasks.ended(first);
  assert.ok(await tasks.holds(paused, "plan > now() AND due = '2001-01-01Z'"));
});

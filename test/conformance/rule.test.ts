import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until, only, statesOf } from "../support/tasks.js";

const { client, tasks } = await serve({ "pg_task.zone": "Europe/Berlin" });

/** A rule whose times lie so far apart that none comes during the tests. */
const yearly = "0 0 1 1 *";

interface Schedule {
  readonly id: string;
  readonly parent: string | null;
  readonly rule: string | null;
  readonly zone: string | null;
  readonly state: string;
  readonly plan: string;
  readonly due: string | null;
  readonly wait: number | null;
  readonly error: string | null;
}

const select = (where: string): string =>
  `SELECT id, parent, rule, zone, state::text AS state, plan::text AS plan, due::text AS due, wait, error FROM task WHERE ${where}`;

const row = async (id: string): Promise<Schedule> => only((await client.query<Schedule>(select(`id = ${id}`))).rows);

/** Waits for the only successor of a task. */
const successor = async (parent: string, more = "true"): Promise<Schedule> =>
  only(await until<Schedule>(client, select(`parent = ${parent} AND ${more}`), (rows) => rows.length > 0));

async function holds(condition: string): Promise<boolean> {
  const { rows } = await client.query<{ holds: boolean }>(`SELECT (${condition}) AS holds`);
  return only(rows).holds;
}

const next = (rule: string, zone: string, since: string): string => `public.task_next('${rule}', '${zone}', ${since})`;

test("INSERT rounds the plan up to the first time of the rule", async () => {
  const { rows } = await client.query(
    `INSERT INTO task (input, rule, zone) VALUES ('SELECT 1', '30 2 * * *', 'Asia/Tokyo')
     RETURNING plan = ${next("30 2 * * *", "Asia/Tokyo", "statement_timestamp() - interval '1 microsecond'")} AS rounded`,
  );
  assert.deepEqual(rows, [{ rounded: true }]);
  const { rows: exact } = await client.query<{ plan: string }>(
    `INSERT INTO task (input, rule, zone, plan) VALUES ('SELECT 1', '30 2 * * *', 'UTC', '2100-01-01 02:30Z')
     RETURNING (plan AT TIME ZONE 'UTC')::text AS plan`,
  );
  assert.deepEqual(exact, [{ plan: "2100-01-01 02:30:00" }]);
});

test("the zone comes from the file unless the row or the rule names one", async () => {
  const [own = "", given = "", anchored = ""] = await tasks.insert(
    { input: "SELECT 1", rule: yearly },
    { input: "SELECT 1", rule: yearly, zone: "Asia/Tokyo" },
    { input: "SELECT 1", rule: "DTSTART;TZID=America/New_York:20300101T090000\nRRULE:FREQ=YEARLY" },
  );
  assert.equal((await row(own)).zone, "Europe/Berlin");
  assert.equal((await row(given)).zone, "Asia/Tokyo");
  assert.equal((await row(anchored)).zone, "America/New_York");
});

for (const [outcome, more] of [
  ["DONE", { input: "SELECT 1", active: "1000 years" }],
  ["FAIL", { input: "SELECT 1/0", active: "1000 years" }],
  ["GONE", { input: "SELECT 1", active: "1 second" }],
] as const) {
  test(`a task that ends ${outcome} gets a successor at the next time`, async () => {
    const [id = ""] = await tasks.insert({ ...more, rule: yearly, zone: "UTC", plan: "2001-01-01Z" });
    assert.equal((await tasks.end(id)).state, outcome);
    const again = await successor(id);
    assert.deepEqual([again.rule, again.zone, again.state, again.wait], [yearly, "UTC", "PLAN", null]);
    assert.ok(await holds(`'${again.plan}'::timestamptz = ${next(yearly, "UTC", "now()")}`));
  });
}

test("a rule that has no more times ends with its last run", async () => {
  const rule = "DTSTART:20010101T000000Z\nRRULE:FREQ=DAILY;UNTIL=20010101T000000Z";
  const [id = ""] = await tasks.insert({
    input: "SELECT 1",
    rule,
    zone: "UTC",
    plan: "2000-01-01Z",
    active: "100 years",
  });
  assert.equal((await tasks.end(id)).state, "DONE");
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
  const [first = ""] = await tasks.insert({
    input: "SELECT 1",
    rule: "0 * * * *",
    zone: "UTC",
    catchup: true,
    active: "3 hours",
    plan: new Date(Date.now() - 10 * 3_600_000).toISOString(),
  });
  const chain = await chainOf(first);
  assert.equal(chain[0]?.state, "GONE");
  const made = chain.slice(1, -1);
  assert.ok(made.every(({ state }) => state === "DONE"));
  assert.ok(made.length >= 3 && made.length <= 4);
  const times = chain.slice(1).map(({ plan }) => Date.parse(plan));
  for (const [index, time] of times.slice(1).entries()) assert.equal(time - (times[index] ?? 0), 3_600_000);
});

test("catchup makes up for missed repetitions of an interval", async () => {
  const [first = ""] = await tasks.insert({
    input: "SELECT 1",
    repeat: "1 hour",
    catchup: true,
    plan: new Date(Date.now() - 2.5 * 3_600_000).toISOString(),
    active: "10 hours",
  });
  const chain = await chainOf(first);
  assert.deepEqual(statesOf(chain), ["DONE", "DONE", "DONE", "PLAN"]);
});

test("overlap plans the next run when this one starts", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT pg_sleep(60)",
    rule: yearly,
    zone: "UTC",
    overlap: true,
    plan: "2001-01-01Z",
    active: "100 years",
  });
  await tasks.sleeping(id);
  const again = await successor(id);
  assert.deepEqual([again.rule, again.zone, again.state], [yearly, "UTC", "PLAN"]);
  assert.deepEqual([(await row(id)).rule, (await row(id)).zone], [null, null]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  await tasks.until([id], ({ owner }) => owner === null);
  assert.equal((await client.query(select(`parent = ${id}`))).rowCount, 1);
});

test("overlap runs a task beside itself if max allows it", async () => {
  const task = { input: "SELECT pg_sleep(60)", rule: "* * * * * *", overlap: true, max: 1, group: "beside" };
  const [first = ""] = await tasks.insert(task);
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
  const [id = ""] = await tasks.insert({ input: "SELECT 1/0", rule });
  assert.equal((await tasks.end(id)).state, "FAIL");
  const again = await successor(id, "wait IS NULL AND plan > now()");
  assert.deepEqual([again.state, again.due], ["PLAN", null]);
  assert.ok(
    await holds(`'${again.plan}'::timestamptz = timestamptz '2100-01-01 00:00Z' + ${id} * interval '1 second'`),
  );
});

test("a query that returns null ends the schedule", async () => {
  const rule = "SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() END;\n";
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule });
  assert.equal((await tasks.end(id)).state, "DONE");
  await until(client, select(`parent = ${id}`), (rows) => rows.length === 0);
  const [none = ""] = await tasks.insert({ input: "SELECT 1", rule: "SELECT now() WHERE false" });
  const ended = await tasks.end(none);
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
    const [id = ""] = await tasks.insert({ input: "SELECT 1", rule });
    const ended = await tasks.end(id);
    assert.equal(ended.state, "FAIL");
    assert.match(ended.error ?? "", error);
    assert.equal((await client.query(select(`parent = ${id}`))).rowCount, 0);
  });
}

test("the error of a query shows the query as it is in rule, and the output is empty", async () => {
  const rule = "SELECT now() +\n  (SELECT 'ä', nothing)::interval;";
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule });
  const ended = await tasks.end(id);
  assert.equal(
    ended.error,
    "ERROR:  column \"nothing\" does not exist at character 31\nSTATEMENT:  SELECT now() +\n\t  (SELECT 'ä', nothing)::interval",
  );
  assert.equal(ended.output, "");
});

test("the next row becomes FAIL if its query returns a time that is not later than the plan of the last run", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT 1",
    rule: "SELECT timestamptz '2020-01-01Z'",
    active: "100 years",
  });
  assert.equal((await tasks.end(id)).state, "DONE");
  const again = await successor(id, "state = 'FAIL'");
  assert.match(
    again.error ?? "",
    /^ERROR: {2}rule returned 2020-01-01T.*, expected a finite time later than 2020-01-01/,
  );
});

test("the schedule goes on from a plan that its user moved", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: yearly, zone: "UTC" });
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  assert.equal((await tasks.end(id)).state, "DONE");
  assert.ok(await holds(`'${(await successor(id)).plan}'::timestamptz = ${next(yearly, "UTC", "now()")}`));
});

test("a row planned for infinity keeps its place in the schedule", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: yearly, zone: "UTC" });
  const { plan } = await row(id);
  await client.query("UPDATE task SET plan = 'infinity' WHERE id = $1", [id]);
  assert.deepEqual([(await row(id)).plan, (await row(id)).due], ["infinity", plan]);
  await client.query("UPDATE task SET plan = $2 WHERE id = $1", [id, plan]);
  assert.deepEqual([(await row(id)).plan, (await row(id)).due], [plan, null]);
});

test("a changed rule is planned anew", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: yearly, zone: "UTC" });
  await client.query("UPDATE task SET rule = '0 0 2 1 *' WHERE id = $1", [id]);
  assert.ok(await holds(`'${(await row(id)).plan}'::timestamptz = ${next("0 0 2 1 *", "UTC", "now()")}`));
  await client.query("UPDATE task SET zone = 'Asia/Tokyo' WHERE id = $1", [id]);
  assert.ok(await holds(`'${(await row(id)).plan}'::timestamptz = ${next("0 0 2 1 *", "Asia/Tokyo", "now()")}`));
});

test("a pause of the group moves the plan, but not the schedule", async () => {
  await client.query("BEGIN");
  const [first = "", paused = ""] = await tasks.insert(
    { input: "SELECT 1", max: -86_400_000, group: "slow" },
    { input: "SELECT 1", max: -86_400_000, group: "slow", rule: yearly, zone: "UTC", plan: "2001-01-01Z" },
  );
  await client.query("COMMIT");
  await tasks.ended(first);
  assert.ok(await holds(`SELECT plan > now() AND due = '2001-01-01Z' FROM task WHERE id = ${paused}`));
});

const refused: readonly (readonly [columns: string, values: string, message: RegExp, code: string])[] = [
  ["rule, zone", "'0 0 * * *', 'Europe/Belrin'", /time zone "Europe\/Belrin" not recognized/, "22023"],
  ["zone", "'UTC'", /zone is set without rule/, "22023"],
  ["rule, repeat", "'0 0 * * *', '1 day'", /rule and repeat exclude each other/, "22023"],
  ["catchup, drift, repeat", "true, true, '1 day'", /catchup and drift exclude each other/, "22023"],
  ["rule, zone", "'SELECT now()', 'UTC'", /zone is set for a rule that is a query/, "22023"],
  ["role", "'me'", /role is not supported yet/, "0A000"],
];

for (const [columns, values, message, code] of refused) {
  test(`INSERT refuses ${columns} of ${values}`, async () => {
    await assert.rejects(client.query(`INSERT INTO task (input, ${columns}) VALUES ('SELECT 1', ${values})`), {
      message,
      code,
    });
  });
}

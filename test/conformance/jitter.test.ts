import assert from "node:assert/strict";
import { createDatabase } from "../support/database.js";
import { commandsOn } from "../support/cli.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { only, until } from "../support/tasks.js";

const { client, database, tasks } = await serve();

/** Yearly, far from the time of the test. */
const rule = "0 3 1 1 *";
const base = `task_next('${rule}', 'UTC')`;

interface Planned {
  readonly id: string;
  readonly seconds: number;
}

const insert = async (values: string, columns = "key, input, rule, zone, jitter"): Promise<string> =>
  await tasks.value<string>(`INSERT INTO task (${columns}) VALUES (${values}) RETURNING id`);

/** How much later than its rule a schedule is planned. */
const secondsLate = async (id: string): Promise<number> =>
  (await tasks.fields<Planned>(id, `extract(epoch FROM plan - ${base})::float8 AS seconds`)).seconds;

test("§5 jitter spreads schedules with the same rule over its length, in whole seconds", async () => {
  const rows = await tasks.rows<Planned>(
    `WITH new AS (
       INSERT INTO task (key, input, rule, zone, jitter) SELECT concat('spread ', n), 'SELECT 1', '${rule}', 'UTC', '10 minutes'
       FROM generate_series(1, 300) AS n RETURNING id, plan)
     SELECT id, extract(epoch FROM plan - ${base})::float8 AS seconds FROM new`,
  );
  assert.ok(rows.every(({ seconds }) => seconds >= 0 && seconds < 600 && Number.isInteger(seconds)));
  for (const minute of Array.from({ length: 10 }, (_, n) => n)) {
    const count = rows.filter(({ seconds }) => Math.floor(seconds / 60) === minute).length;
    assert.ok(count >= 10 && count <= 60, `${count} of 300 in minute ${minute}`);
  }
});

test("§5 the key decides; without one, each schedule has a time of its own", async () => {
  const first = await insert(`'stable', 'SELECT 1', '${rule}', 'UTC', '1 day'`);
  const late = await secondsLate(first);
  await client.query("DELETE FROM task WHERE id = $1", [first]);
  const second = await insert(`'stable', 'SELECT 2', '${rule}', 'UTC', '1 day'`);
  assert.equal(await secondsLate(second), late);
  const keyless = await tasks.rows<{ different: number }>(
    `WITH new AS (INSERT INTO task (input, rule, zone, jitter) SELECT 'SELECT 1', '${rule}', 'UTC', '1 day' FROM generate_series(1, 20) RETURNING plan)
     SELECT count(DISTINCT plan)::integer AS different FROM new`,
  );
  assert.ok(only(keyless).different >= 18);
});

test("§5 all later runs, and the shown times, are later by the same time", async () => {
  const id = await insert(`'goes on', 'SELECT 1', '${rule}', 'UTC', '1 day'`);
  const late = await secondsLate(id);
  assert.ok(late > 0);
  const { stdout } = await commandsOn(database).run("list", "--schedules", "--key", "goes on", "--json");
  const [schedule] = JSON.parse(stdout).schedules;
  const shown = await tasks.rows<{ at: string }>(
    `SELECT to_char(("time" + $1 * interval '1 s') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS at FROM task_times('${rule}', 'UTC', now(), 3)`,
    [late],
  );
  assert.deepEqual(
    schedule.next.map(({ wall }: { wall: string }) => wall.slice(0, 19)),
    shown.map(({ at }) => at),
  );
  const view = await tasks.value<boolean>(
    "SELECT next = ARRAY(SELECT \"time\" + $1 * interval '1 s' FROM task_times($2, 'UTC', now(), cardinality(next))) FROM task_schedules WHERE key = 'goes on'",
    [late, rule],
  );
  assert.equal(view, true);

  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  const next = await until<{ id: string }>(
    client,
    `SELECT id FROM task WHERE parent = ${id}`,
    (rows) => rows.length > 0,
  );
  assert.equal(await secondsLate(only(next).id), late);
  assert.ok(await tasks.holds(only(next).id, "jitter = '1 day' AND due IS NULL"));
});

test("§5 a pause and its end, another jitter, and the end of the schedule", async () => {
  const id = await insert(`'changed', 'SELECT 1', '${rule}', 'UTC', '1 day'`);
  const late = await secondsLate(id);
  await client.query("SELECT task_pause('changed')");
  await client.query("SELECT task_resume('changed')");
  assert.equal(await secondsLate(id), late);
  await client.query("UPDATE task SET jitter = NULL WHERE id = $1", [id]);
  assert.equal(await secondsLate(id), 0);
  await client.query("UPDATE task SET jitter = '1 day' WHERE id = $1", [id]);
  assert.equal(await secondsLate(id), late);
  await client.query("UPDATE task SET rule = NULL, zone = NULL, plan = 'infinity' WHERE id = $1", [id]);
  assert.ok(await tasks.holds(id, "jitter IS NULL AND shift IS NULL"));
});

test("§5 of a recurrence rule without DTSTART, of a query, and of a job by name", async () => {
  const ofRule = await insert(
    "'recurrence', 'SELECT 1', 'FREQ=DAILY', 'UTC', '2100-01-01 00:00Z', '1 day'",
    "key, input, rule, zone, plan, jitter",
  );
  assert.ok(
    await tasks.holds(
      ofRule,
      "plan = '2100-01-01 00:00Z'::timestamptz + shift AND shift > '0' AND rule ~ 'DTSTART.*21000101T000000'",
    ),
  );
  const ofQuery = await insert(
    `'query', 'SELECT 1', $$SELECT timestamptz '2100-01-01 00:00Z'$$, '1 day'`,
    "key, input, rule, jitter",
  );
  await until(client, `SELECT FROM task WHERE id = ${ofQuery} AND plan > '2099-12-31'`, (rows) => rows.length > 0);
  assert.ok(await tasks.holds(ofQuery, "plan = '2100-01-01 00:00Z'::timestamptz + shift AND shift > '0'"));
  const job = await tasks.value<string>(
    `SELECT task_schedule('by name', '${rule}', 'SELECT 1', 'UTC', '{"jitter": "1 day"}')`,
  );
  const late = await secondsLate(job);
  assert.ok(late > 0);
  await tasks.value(`SELECT task_schedule('by name', '${rule}', 'SELECT 2', 'UTC', '{"jitter": "1 day"}')`);
  assert.equal(await secondsLate(job), late);
});

test("§5 rows that are loaded from a dump keep their plans", async () => {
  const id = await insert(`'dumped', 'SELECT 1', '${rule}', 'UTC', '1 day'`);
  const late = await secondsLate(id);
  const other = await createDatabase();
  const target = await other.connect();
  const { rows } = await client.query<Record<string, unknown>>(
    "SELECT key, input, rule, zone, plan::text AS plan, jitter::text AS jitter, shift::text AS shift FROM task WHERE id = $1",
    [id],
  );
  const row = only(rows);
  await target.query(
    `INSERT INTO task (${Object.keys(row).join(", ")}) VALUES ($1, $2, $3, $4, $5::timestamptz, $6::interval, $7::interval)`,
    Object.values(row),
  );
  const { rows: loaded } = await target.query<{ late: number }>(
    `SELECT extract(epoch FROM plan - ${base})::float8 AS late FROM task`,
  );
  assert.equal(only(loaded).late, late);
});

test("§5 refuses a jitter without a rule, or one that is too short or too long", async () => {
  for (const [values, message] of [
    ["'SELECT 1', NULL, '1 minute'", /jitter is set without rule/],
    [`'SELECT 1', '${rule}', '0.5 s'`, /jitter must be between 1 second and 31 days, not 00:00:00\.5/],
    [`'SELECT 1', '${rule}', '-1 min'`, /jitter must be between/],
    [`'SELECT 1', '${rule}', '1 year'`, /jitter must be between/],
  ] as const)
    await assert.rejects(client.query(`INSERT INTO task (input, rule, jitter) VALUES (${values})`), message);
});

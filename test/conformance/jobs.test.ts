import assert from "node:assert/strict";
import { describe } from "node:test";
import { eventually, valueOf } from "../support/tasks.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { createDatabase } from "../support/database.js";
import { createRole, ensureTaskTable } from "../support/taskTables.js";

const { database, client, tasks } = await serve({ "pg_task.zone": "Europe/Berlin" });

/** A rule whose next time is far away. */
const rare = "0 3 1 1 *";

const schedule = async (parameters: string, on = client): Promise<string> =>
  await valueOf(on, `SELECT task_schedule(${parameters})`);

/** The rows that wait or run with a key. */
const active = (key: string): Promise<Record<string, unknown>[]> =>
  tasks.rows(
    `SELECT id, parent, state::text AS state, rule, zone, repeat::text AS repeat, input, "group", keep::text AS keep, "delete",
       timeout::text AS timeout, plan::text AS plan, max, args FROM task
     WHERE key = $1 AND state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id`,
    [key],
  );

/** What must be true of the only row that waits or runs with a key. */
async function assertOnly(key: string, expected: Readonly<Record<string, unknown>>): Promise<void> {
  const rows = await active(key);
  assert.equal(rows.length, 1);
  const shown = Object.keys(expected).map((name) => [name, rows[0]?.[name]]);
  assert.deepEqual(Object.fromEntries(shown), expected);
}

describe("task_schedule", () => {
  test("plans a job, in a group of its own, and keeps its runs for a week", async () => {
    const id = await schedule(`'new', '${rare}', 'SELECT 1'`);
    const more = { group: "new", keep: "7 days", delete: false, zone: "Europe/Berlin", repeat: "00:00:00" };
    await assertOnly("new", { id, rule: rare, input: "SELECT 1", ...more });
  });

  for (const [given, repeat] of [
    ["30 seconds", "00:00:30"],
    ["1 hour 30 minutes", "01:30:00"],
    ["5m", "00:05:00"],
    ["2 days", "2 days"],
    ["1 month", "1 mon"],
    [" 90 S ", "00:01:30"],
  ]) {
    test(`repeats after "${given}", for the first time then`, async () => {
      const id = await schedule(`'${given}', '${given}', 'SELECT 1'`);
      await assertOnly(given ?? "", { repeat, rule: null, zone: null });
      assert.ok(await tasks.holds(id, "plan - created BETWEEN repeat - interval '1 s' AND repeat"));
    });
  }

  test("changes the job that waits, in its row, and options that are left out get their defaults", async () => {
    const id = await schedule(
      `'changes', '${rare}', 'SELECT 1', options => '{"timeout": "5 s", "max": 3, "args": [1], "group": "g"}'`,
    );
    await assertOnly("changes", { timeout: "00:00:05", max: 3, args: [1], group: "g" });
    assert.equal(await schedule(`'changes', '0 4 1 1 *', 'SELECT 2', 'UTC', '{"keep": "1 day"}'`), id);
    const changed = { rule: "0 4 1 1 *", input: "SELECT 2", zone: "UTC", keep: "1 day" };
    await assertOnly("changes", { ...changed, timeout: "00:00:00", max: 0, args: null, group: "changes" });
    assert.equal(await schedule(`'changes', '1 hour', 'SELECT 3'`), id);
    await assertOnly("changes", { rule: null, zone: null, repeat: "01:00:00", keep: "7 days" });
    assert.ok(await tasks.holds(id, "plan BETWEEN now() + interval '59 min' AND now() + interval '1 hour'"));
    assert.equal(await schedule(`'changes', '${rare}', 'SELECT 3'`), id);
    assert.ok(await tasks.holds(id, "plan = task_next(rule, zone)"));
  });

  for (const given of [
    rare,
    "FREQ=YEARLY;BYMONTH=1;BYMONTHDAY=1;BYHOUR=3",
    "RRULE:FREQ=YEARLY;INTERVAL=2;BYMONTH=1;BYMONTHDAY=1",
    "DTSTART:20300101T000000Z\nRRULE:FREQ=DAILY",
    "1 day",
    "SELECT now() + interval '1 hour'",
  ]) {
    test(`leaves the plan of a job that stays the same: ${given}`, async () => {
      const call = `'same ${given.replaceAll("'", "")}', '${given.replaceAll("'", "''")}', 'SELECT 1'`;
      const id = await schedule(call);
      await tasks.until([id], ({ state, plan }) => state === "PLAN" && plan > new Date().toISOString());
      await tasks.set(id, "plan = now() + interval '40 min'");
      const before = await tasks.row(id);
      const rule = await tasks.fields(id, "rule");
      assert.equal(await schedule(call), id);
      assert.deepEqual([await tasks.row(id), await tasks.fields(id, "rule")], [before, rule]);
    });
  }

  test("keeps the zone of a job that names none, and changes to the one that is given", async () => {
    await schedule(`'zone', '${rare}', 'SELECT 1', 'Asia/Tokyo'`);
    await schedule(`'zone', '0 4 * * *', 'SELECT 1'`);
    await assertOnly("zone", { rule: "0 4 * * *", zone: "Asia/Tokyo" });
    await schedule(`'zone', '0 4 * * *', 'SELECT 1', 'UTC'`);
    await assertOnly("zone", { zone: "UTC" });
    await schedule(`'zone', 'DTSTART;TZID=Europe/Rome:20300101T000000\nRRULE:FREQ=DAILY', 'SELECT 1'`);
    await assertOnly("zone", { zone: "Europe/Rome" });
    await schedule(`'zone', 'SELECT now() + interval ''1 day''', 'SELECT 1'`);
    await assertOnly("zone", { zone: null });
  });

  test("begins at the plan that is given, and goes on from there", async () => {
    const begin = (from: string): Promise<string> =>
      schedule(`'begins', '1 day', 'SELECT 1', options => '{"plan": "${from}"}'`);
    const id = await begin("2100-01-01 00:00Z");
    await begin("2100-02-01 00:00Z");
    assert.ok(await tasks.holds(id, "plan = '2100-01-01 00:00Z'"));
    await schedule(`'begins', '0 0 * * *', 'SELECT 1', 'UTC', '{"plan": "2100-03-01 12:00Z"}'`);
    assert.ok(await tasks.holds(id, "plan = '2100-03-02 00:00Z'"));
  });

  test("leaves a paused job paused, whatever changes", async () => {
    const id = await schedule(`'paused', '${rare}', 'SELECT 1'`);
    await client.query("SELECT task_pause('paused')");
    for (const next of ["0 4 1 1 *", "1 hour", rare]) {
      assert.equal(await schedule(`'paused', '${next}', 'SELECT 2'`), id);
      assert.ok(await tasks.holds(id, "plan = 'infinity'"));
    }
    await client.query("SELECT task_resume('paused')");
    assert.ok(await tasks.holds(id, "plan = task_next(rule, zone)"));
  });

  test("makes a job of a task that waits for a signal", async () => {
    for (const [given, planned] of [
      [rare, "task_next(rule, zone)"],
      ["1 day", "statement_timestamp() + interval '1 day'"],
    ]) {
      const id = await tasks.add("SELECT 1", { key: "signal", plan: "infinity" });
      assert.equal(await schedule(`'signal', '${given}', 'SELECT 1'`), id);
      assert.ok(await tasks.holds(id, `plan BETWEEN ${planned} - interval '1 min' AND ${planned}`));
      await client.query("SELECT task_unschedule('signal')");
    }
  });

  test("gives a job that runs its next run, which replaces the one that it would have had", async () => {
    const { wait, open } = await tasks.gate();
    const first = await schedule(`'runs', '${rare}', '${wait}'`);
    await client.query("SELECT task_run('runs')");
    await tasks.running(first);
    const second = await schedule(`'runs', '0 4 1 1 *', 'SELECT 2'`);
    assert.equal(await schedule(`'runs', '0 5 1 1 *', 'SELECT 3'`), second);
    assert.deepEqual(
      (await active("runs")).map(({ id, rule, input }) => [id, rule, input]),
      [
        [first, rare, wait],
        [second, "0 5 1 1 *", "SELECT 3"],
      ],
    );
    await open();
    assert.equal((await tasks.end(first)).state, "DONE");
    await assertOnly("runs", { id: second, parent: first, rule: "0 5 1 1 *" });
  });

  test("keeps the rhythm of a job that stays the same while it runs", async () => {
    const { wait, open } = await tasks.gate();
    for (const [key, given] of [
      ["rhythm", "20 minutes"],
      ["anchored", "FREQ=HOURLY"],
    ]) {
      const first = await schedule(`'${key}', '${given}', '${wait}', options => '{"group": "${key}"}'`);
      await tasks.set(first, "plan = now() - interval '50 min'");
      await tasks.running(first);
      const rule = await tasks.fields(first, "rule");
      const second = await schedule(`'${key}', '${given}', 'SELECT 2'`);
      assert.deepEqual(await tasks.fields(second, "rule"), rule);
      if (key === "rhythm") {
        const next = "(SELECT f.plan + interval '1 hour' FROM task AS f WHERE f.id = " + first + ")";
        assert.ok(await tasks.holds(second, `plan = ${next}`));
      }
    }
    await open();
  });

  test("of many sessions at once, one plans the job, and the others change it", async () => {
    const sessions = await Promise.all(Array.from({ length: 8 }, () => database.connect()));
    for (let round = 0; round < 20; round++) {
      const ids = await Promise.all(
        sessions.map((each, n) => schedule(`'race ${round}', '${n} 3 1 1 *', 'SELECT ${n}'`, each)),
      );
      assert.equal(new Set(ids).size, 1);
      assert.equal((await active(`race ${round}`)).length, 1);
    }
  });

  test("never doubles a job that starts and ends all the time meanwhile", async () => {
    const other = await database.connect();
    const change = async (session: typeof client, name: string): Promise<void> => {
      for (let n = 0; n < 150; n++) {
        await schedule(
          `'busy', '1 second', 'SELECT ''${name} ${n}''', options => '{"plan": "2000-01-01", "active": "100 years"}'`,
          session,
        );
        await session
          .query("SELECT task_run('busy') WHERE EXISTS (SELECT FROM task WHERE key = 'busy' AND ready IS NOT NULL)")
          .catch(() => {});
      }
    };
    await Promise.all([change(client, "a"), change(other, "b")]);
    await eventually(
      client,
      "SELECT FROM task WHERE key = 'busy' AND state IN ('PLAN', 'TAKE', 'WORK')",
      ({ length }) => length === 1,
    );
    assert.equal(await valueOf(client, "SELECT task_unschedule('busy')"), true);
    await eventually(
      client,
      "SELECT FROM task WHERE key = 'busy' AND state IN ('PLAN', 'TAKE', 'WORK')",
      ({ length }) => length === 0,
    );
    const twice = `SELECT FROM task AS a JOIN task AS b ON a.key = b.key AND a.id < b.id AND a.start < b.stop AND b.start < a.stop WHERE a.key = 'busy'`;
    assert.equal((await client.query(twice)).rowCount, 0);
  });

  test("keeps the runs for as long as the table does, if it does not keep them forever", async () => {
    await client.query("SET pg_task.keep = '30 days'");
    await schedule(`'kept', '${rare}', 'SELECT 1'`);
    await client.query("RESET pg_task.keep");
    await assertOnly("kept", { keep: "30 days" });
  });

  test("sets a column that a user has added", async () => {
    await client.query("ALTER TABLE task ADD COLUMN tenant integer");
    const id = await schedule(`'tenant', '${rare}', 'SELECT 1', options => '{"tenant": 7}'`);
    assert.deepEqual(await tasks.fields(id, "tenant"), { tenant: 7 });
    await schedule(`'tenant', '${rare}', 'SELECT 1', options => '{"tenant": 8}'`);
    assert.deepEqual(await tasks.fields(id, "tenant"), { tenant: 8 });
    await client.query("ALTER TABLE task DROP COLUMN tenant");
  });

  for (const [title, parameters, code, message] of [
    ["no key", `NULL, '${rare}', 'SELECT 1'`, "22023", "task_schedule expects a key, a schedule and an input"],
    ["no schedule", `'bad', NULL, 'SELECT 1'`, "22023", "task_schedule expects a key, a schedule and an input"],
    ["no input", `'bad', '${rare}', NULL`, "22023", "task_schedule expects a key, a schedule and an input"],
    ["an empty key", `'', '${rare}', 'SELECT 1'`, "22023", "key is empty"],
    ["a rule that is wrong", `'bad', '61 * * * *', 'SELECT 1'`, "22023", /61/],
    ["a rule that never comes", `'bad', '0 0 31 2 *', 'SELECT 1'`, "22023", /never comes/],
    ["an interval of 0", `'bad', '0 seconds', 'SELECT 1'`, "22023", `the interval must be above 0, not "0 seconds"`],
    ["an unknown unit", `'bad', '5 lightyears', 'SELECT 1'`, "22023", /expected 5 or 6 fields/],
    ["a zone for an interval", `'bad', '1 hour', 'SELECT 1', 'UTC'`, "22023", "zone is set for an interval"],
    ["an unknown zone", `'bad', '${rare}', 'SELECT 1', 'Mars'`, "22023", /time zone "Mars" not recognized/],
    [
      "unknown options",
      `'bad', '${rare}', 'SELECT 1', options => '{"tiemout": "1 s", "wait": 1}'`,
      "22023",
      "unknown option: tiemout, wait",
    ],
    [
      "an option that is an argument",
      `'bad', '${rare}', 'SELECT 1', options => '{"rule": "@daily"}'`,
      "22023",
      "unknown option: rule",
    ],
    [
      "a value of a wrong type",
      `'bad', '${rare}', 'SELECT 1', options => '{"retry": "x"}'`,
      "22P02",
      /invalid input syntax/,
    ],
    ["a value out of bounds", `'bad', '${rare}', 'SELECT 1', options => '{"active": "0"}'`, "23514", /active/],
    [
      "a delimiter of two characters",
      `'bad', '${rare}', 'SELECT 1', options => '{"delimiter": "ab"}'`,
      "22023",
      "delimiter, escape and quote have one character",
    ],
    [
      "options that are a list",
      `'bad', '${rare}', 'SELECT 1', options => '[]'`,
      "22023",
      "options must be an object, not array",
    ],
  ] as const) {
    test(`${title} is refused`, async () => {
      await assert.rejects(schedule(parameters), { code, message });
      assert.equal((await active("bad")).length, 0);
    });
  }

  test("works for a role that may only read, insert and change tasks, and fails for one that may not", async () => {
    const role = await createRole(client, "job_author");
    const session = await database.connect();
    await session.query(`SET ROLE ${role}`);
    await assert.rejects(schedule(`'role', '${rare}', 'SELECT 1'`, session), { code: "42501" });
    await client.query(`GRANT SELECT, INSERT, UPDATE ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role};
      GRANT SELECT ON task_owed TO ${role}`);
    const id = await schedule(`'role', '${rare}', 'SELECT 1'`, session);
    assert.equal(await schedule(`'role', '0 4 1 1 *', 'SELECT 1'`, session), id);
    for (const call of ["pause", "pause", "resume", "run", "unschedule"])
      await session.query(`SELECT task_${call}('role')`);
    await tasks.end(id);
  });
});

const unschedule = (key: string): Promise<boolean> => valueOf(client, "SELECT task_unschedule($1)", [key]);

test("a table with another name has functions with its name", async () => {
  await client.query('CREATE SCHEMA "my Schema"');
  await ensureTaskTable(database.target, { schema: "my Schema", table: "Bob's list" });
  const name = `"my Schema"."Bob's list`;
  const id = await valueOf<string>(client, `SELECT ${name}_schedule"('job', '1 day', 'SELECT 1')`);
  for (const change of ["pause", "resume", "run"])
    assert.equal(await valueOf(client, `SELECT ${name}_${change}"('job')`), true);
  assert.equal(await valueOf(client, `SELECT ${name}_schedule"('job', '2 days', 'SELECT 2')`), id);
  assert.equal(await valueOf(client, `SELECT ${name}_unschedule"('job')`), true);
  assert.equal(await valueOf(client, `SELECT ${name}_retry"(${id})`), true);
  assert.equal(await valueOf(client, `SELECT ${name}_stop"(${id})`), true);
  assert.equal(await valueOf(client, `SELECT ${name}_signal"('job')`), false);
  assert.deepEqual((await client.query(`CALL ${name}_wait"(${id})`)).rows, [
    { state: "STOP", output: null, error: null },
  ]);
  assert.equal((await client.query(`SELECT ${name}_chain"('["SELECT 1"]')`)).rowCount, 1);
});

test("a partitioned table, which has no keys, refuses them", async () => {
  const partitioned = await createDatabase("empty");
  const session = await partitioned.connect();
  await session.query(`CREATE TABLE task (id bigserial PRIMARY KEY, plan timestamptz NOT NULL DEFAULT now(), state text NOT NULL DEFAULT 'PLAN',
    input text NOT NULL) PARTITION BY RANGE (id); CREATE TABLE task_all PARTITION OF task DEFAULT`);
  await ensureTaskTable(partitioned.target);
  for (const call of [`schedule('a', '1 day', 'SELECT 1')`, "unschedule('a')", "pause('a')", "run('a')", "signal('a')"])
    await assert.rejects(session.query(`SELECT task_${call}`), { code: "0A000", message: "this table has no keys" });
  assert.equal((await session.query(`SELECT task_chain('["SELECT 1"]')`)).rowCount, 1);
});

describe("task_unschedule", () => {
  test("stops a job that waits, and says whether there was one", async () => {
    const id = await schedule(`'over', '${rare}', 'SELECT 1'`);
    assert.deepEqual(
      [await unschedule("over"), await unschedule("over"), await unschedule("never")],
      [true, false, false],
    );
    assert.deepEqual(await tasks.fields(id, "state::text AS state, rule"), { state: "STOP", rule: rare });
    assert.notEqual(await schedule(`'over', '${rare}', 'SELECT 1'`), id);
  });

  test("lets a run end, which is the last one", async () => {
    const { wait, open } = await tasks.gate();
    const id = await schedule(`'last', '1 second', '${wait}', options => '{"plan": "now"}'`);
    await tasks.running(id);
    assert.equal(await unschedule("last"), true);
    await open();
    assert.equal((await tasks.end(id)).state, "DONE");
    await tasks.released(id);
    assert.deepEqual(await active("last"), []);
  });

  test("ends a query that computes its time, and the job does not run", async () => {
    const id = await schedule("'computes', 'SELECT now() FROM pg_sleep(60)', 'SELECT 1'");
    await tasks.until([id], ({ state }) => state === "WORK" || state === "TAKE");
    assert.equal(await unschedule("computes"), true);
    const { state, output } = await tasks.released(id);
    assert.deepEqual([state, output ?? ""], ["STOP", ""]);
    assert.deepEqual(await active("computes"), []);
  });

  test("ends both a run and the changed job that waits for its end", async () => {
    const { wait, open } = await tasks.gate();
    const id = await schedule(`'both', '1 second', '${wait}', options => '{"plan": "now"}'`);
    await tasks.running(id);
    await schedule(`'both', '2 seconds', '${wait}'`);
    assert.equal(await unschedule("both"), true);
    await open();
    await tasks.released(id);
    assert.deepEqual(await active("both"), []);
  });

  test("ends a job at whatever moment it comes", async () => {
    for (let round = 0; round < 30; round++) {
      await schedule(`'moment', '1 second', 'SELECT 1', options => '{"plan": "now"}'`);
      if (round % 2 === 0)
        await eventually(
          client,
          "SELECT FROM task WHERE key = 'moment' AND state <> 'PLAN'",
          ({ length }) => length > 0,
        );
      await unschedule("moment");
      await eventually(
        client,
        "SELECT FROM task WHERE key = 'moment' AND state IN ('TAKE', 'WORK')",
        ({ length }) => length === 0,
      );
      assert.deepEqual(await active("moment"), []);
    }
  });
});

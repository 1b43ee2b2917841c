import assert from "node:assert/strict";
import { describe } from "node:test";
import { importing } from "../../../support/importLines.js";
import { test } from "../../../support/limitedTest.js";
import { agentTables } from "../../../support/schedulerTables.js";

const emptied = "pgagent.pga_job, pgagent.pga_schedule";
const { client, tasks, run, lines, rows, db } = await importing("pgagent", agentTables, emptied);
await client.query(`CREATE FUNCTION flags(size integer, VARIADIC places integer[]) RETURNS bool[] LANGUAGE sql AS
  'SELECT array_agg(i = ANY (places) ORDER BY i) FROM generate_series(1, size) AS i'`);
await client.query(`ALTER DATABASE ${db} SET "TimeZone" = 'Europe/Berlin'`);

/** Adds a job with one step and one schedule. */
async function addJob(schedule: Readonly<Record<string, string>>, job = "jobname) VALUES ('job'"): Promise<string> {
  const [names, values] = [Object.keys(schedule), Object.values(schedule)].map((each) =>
    each.map((text) => `, ${text}`).join(""),
  );
  const id = await tasks.value<string>(`INSERT INTO pgagent.pga_job (${job}) RETURNING jobid::text`);
  await client.query(`INSERT INTO pgagent.pga_jobstep (jstjobid, jstname, jstkind, jstcode, jstdbname) VALUES (${id}, 'a', 's', 'SELECT 1', '${db}');
    INSERT INTO pgagent.pga_schedule (jscjobid, jscname, jscstart${names}) VALUES (${id}, 's', '2020-02-01 12:34:56+01'${values})`);
  return id;
}

const addStep = (job: string, name: string, code: string, more = "'s', 'f', ''"): Promise<unknown> =>
  client.query(
    `INSERT INTO pgagent.pga_jobstep (jstjobid, jstname, jstcode, jstkind, jstonerror, jstconnstr, jstdbname) VALUES (${job}, '${name}', '${code}', ${more}, '${db}')`,
  );

const timesOf = (id: number) =>
  tasks.value(
    `SELECT string_agg(to_char(t.wall, 'MM-DD HH24:MI'), ', ') FROM task, task_times(rule, zone, '2026-03-01 00:00+01', 3) AS t WHERE key LIKE '%.${id}'`,
  );

describe("pg-task import pgagent", () => {
  test("turns one list of days into cron, and both into a recurrence rule", async () => {
    await addJob({});
    await addJob({
      jscminutes: "flags(60, 1, 31)",
      jschours: "flags(24, 5)",
      jscweekdays: "flags(7, 1, 7)",
      jscmonths: "flags(12, 2)",
    });
    await addJob({ jscminutes: "flags(60, 1)", jschours: "flags(24, 5)", jscmonthdays: "flags(32, 32)" });
    await addJob({
      jscminutes: "flags(60, 1)",
      jschours: "flags(24, 5)",
      jscmonthdays: "flags(32, 13)",
      jscweekdays: "flags(7, 6)",
    });
    await addJob({
      jscminutes: "flags(60, 1)",
      jschours: "flags(24, 5)",
      jscmonthdays: "flags(32, 15, 32)",
      jscend: "'2999-01-01 00:00+01'",
    });
    const skipped = "a time that the clocks skip is left out";
    assert.deepEqual(await lines(), [
      "pgagent 1.1: same",
      "pgagent 2.2: same",
      "pgagent 3.3: same",
      `pgagent 4.4: differs: ${skipped}`,
      `pgagent 5.5: differs: pgAgent ignores the last day beside other days; ${skipped}`,
    ]);
    await lines("--apply");
    const zone = "Europe/Berlin";
    const common = { zone, input: "SELECT 1", remote: null };
    const start = "DTSTART:20200201T123400\nRRULE:FREQ=DAILY";
    assert.deepEqual(await rows("key, rule, zone, input, remote"), [
      { ...common, key: "pgagent 1.1", rule: "* * * * *" },
      { ...common, key: "pgagent 2.2", rule: "0,30 4 * 2 0,6" },
      { ...common, key: "pgagent 3.3", rule: "0 4 L * *" },
      { ...common, key: "pgagent 4.4", rule: `${start};BYMONTHDAY=13;BYDAY=FR;BYHOUR=4;BYMINUTE=0;BYSECOND=0` },
      {
        ...common,
        key: "pgagent 5.5",
        rule: `${start};BYMONTHDAY=15;BYHOUR=4;BYMINUTE=0;BYSECOND=0;UNTIL=29981231T230000Z`,
      },
    ]);
    assert.equal(
      await tasks.value("SELECT task_next(rule, zone, '2026-01-01')::text FROM task WHERE key = 'pgagent 4.4'"),
      "2026-02-13 03:00:00+00",
    );
    assert.equal(await tasks.value("SELECT count(*)::int FROM pgagent.pga_job WHERE jobenabled"), 0);
  });

  test("leaves out the exceptions", async () => {
    await addJob({ jscminutes: "flags(60, 31)", jschours: "flags(24, 4, 5)" });
    await addJob({ jscminutes: "flags(60, 1, 31)", jschours: "flags(24, 4, 5)" });
    await client.query(`INSERT INTO pgagent.pga_exception (jexscid, jexdate, jextime) VALUES
      (1, '2026-03-02', NULL), (1, '2026-03-03', '03:30'), (1, NULL, '04:30'), (2, NULL, '03:30'), (2, NULL, '05:30')`);
    const [, second = ""] = await lines("--apply");
    assert.match(second, /its exceptions by time leave out the whole hours 3$/);
    assert.equal(await timesOf(1), "03-01 03:30, 03-04 03:30, 03-05 03:30");
    assert.equal(await timesOf(2), "03-01 04:00, 03-01 04:30, 03-02 04:00");
  });

  test("gives each schedule of a job a row, and pauses what is disabled", async () => {
    const id = await addJob({});
    await client.query(`INSERT INTO pgagent.pga_schedule (jscjobid, jscname, jscenabled) VALUES (${id}, 'off', false)`);
    await addJob({}, "jobname, jobenabled, jobhostagent) VALUES ('disabled', false, 'host'");
    assert.deepEqual(await lines("--apply"), [
      "pgagent 1.1: differs: a time of two of its schedules runs twice",
      "pgagent 1.2: differs: a time of two of its schedules runs twice",
      "pgagent 2.3: differs: it was bound to the agent on host",
    ]);
    assert.deepEqual(await rows("plan = 'infinity' AS paused"), [
      { paused: false },
      { paused: true },
      { paused: true },
    ]);
    assert.deepEqual((await run("import", "pgagent", "--back")).code, 0);
    assert.equal(await tasks.value("SELECT string_agg(jobid::text, ', ') FROM pgagent.pga_job WHERE jobenabled"), "1");
  });

  test("does not take over batch steps, and jobs without steps or schedules", async () => {
    await addStep(await addJob({}), "b", "echo", "'b', 'f', ''");
    const bare = await addJob({});
    await client.query(`UPDATE pgagent.pga_jobstep SET jstenabled = false WHERE jstjobid = ${bare}`);
    await client.query("INSERT INTO pgagent.pga_job (jobname) VALUES ('never')");
    assert.deepEqual(await lines(), [
      "pgagent 1: not mapped: it has a batch step",
      "pgagent 2: not mapped: it has no enabled step",
      "pgagent 3: not mapped: it has no schedule",
    ]);
  });

  test("runs what pgAgent owes, but not what it has begun", async () => {
    for (const name of ["owed", "begun", "later"])
      await addJob({ jscminutes: "flags(60, 1)", jschours: "flags(24, 5)" }, `jobname) VALUES ('${name}'`);
    await client.query(`UPDATE pgagent.pga_job SET jobnextrun = CASE WHEN jobname = 'later' THEN now() + interval '1 hour' ELSE '2026-01-02 04:00+01' END,
      jobagentid = CASE WHEN jobname = 'begun' THEN 1 END`);
    await lines("--apply");
    assert.deepEqual(await rows("plan = '2026-01-02 04:00+01' AS owed, plan = task_next(rule, zone) AS coming"), [
      { owed: true, coming: false },
      { owed: false, coming: true },
      { owed: false, coming: true },
    ]);
  });
});

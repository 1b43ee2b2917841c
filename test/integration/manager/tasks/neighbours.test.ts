import assert from "node:assert/strict";
import * as fc from "fast-check";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks, type NewTask } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const tasks = await Tasks.create(client);

/** An input that runs until the test opens the gate. */
const long = "SELECT FROM pg_advisory_lock_shared(1)";
const isLong = ({ input }: NewTask): boolean => input === long;

async function insert(planned: readonly NewTask[]): Promise<{ short: string[]; long: string[] }> {
  const { rows } = await client.query<{ id: string; input: string }>(
    `INSERT INTO task ("group", max, input)
     SELECT "group", max, input FROM jsonb_to_recordset($1) AS t("group" text, max integer, input text)
     RETURNING id, input`,
    [JSON.stringify(planned.map((task) => ({ max: 0, group: "group", ...task })))],
  );
  const ids = (wanted: boolean) => rows.flatMap((row) => (isLong(row) === wanted ? row.id : []));
  return { short: ids(false), long: ids(true) };
}

/** Inserts tasks, and asserts that while the gate is closed, all short tasks end and all long ones run. */
async function expectNoneWaits(planned: readonly NewTask[]): Promise<void> {
  await gate.query("SELECT pg_advisory_lock(1)");
  try {
    const ids = await insert(planned);
    const [ended] = await Promise.all([
      tasks.ended(...ids.short),
      tasks.until(ids.long, (row) => row.state === "WORK"),
    ]);
    for (const { state } of ended) assert.equal(state, "DONE");
    await gate.query("SELECT pg_advisory_unlock(1)");
    await tasks.ended(...ids.long);
  } finally {
    await gate.query("SELECT pg_advisory_unlock_all()");
  }
}

const hundredGroups = Array.from({ length: 100 }, (_, index) => ({
  input: index % 10 === 9 ? long : "SELECT 1",
  group: `own ${index}`,
}));
const oneGroup = Array.from({ length: 500 }, (_, index) => ({
  input: index % 50 === 49 ? long : "SELECT 1",
  group: "wide",
  max: 1000,
}));

async function warmUp(): Promise<void> {
  const { short } = await insert(
    Array.from({ length: 300 }, (_, index) => ({ input: "SELECT 1", group: `warm ${index % 7}` })),
  );
  await tasks.ended(...short);
}

test("short tasks of a hundred groups do not wait behind long ones with unknown run times", async () => {
  await pgTask.start({ url: database.url });
  await expectNoneWaits(hundredGroups);
});

test("short tasks do not wait behind long ones when all tasks have been short so far", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  await warmUp();
  await expectNoneWaits(hundredGroups);
  await warmUp();
  await expectNoneWaits([
    { input: long, group: "slow" },
    { input: "SELECT 1", group: "lone" },
  ]);
});

test("short tasks of one group do not wait behind long ones if its max lets all run", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  await warmUp();
  await expectNoneWaits(oneGroup);
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  await expectNoneWaits(oneGroup);
});

test("a group that runs one task at a time opens one session, however many wait", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  const input = "SELECT pg_sleep(0.02)";
  const { short } = await insert(Array.from({ length: 100 }, () => ({ input, group: "serial" })));
  await tasks.ended(...short);
  const { rows } = await client.query(
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND pid IN (SELECT pid FROM task WHERE "group" = 'serial')
     UNION SELECT pid FROM task WHERE "group" = 'serial'`,
  );
  assert.equal(rows.length, 1);
});

test("with few sessions the short ones share what the long ones leave", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url, "pg_conf.max": 4 });
  const threeLong = hundredGroups.map((task, index) =>
    isLong(task) && index > 30 ? { ...task, input: "SELECT 1" } : task,
  );
  await expectNoneWaits(threeLong);
  await warmUp();
  await expectNoneWaits(threeLong);
});

test("whatever the tasks of groups take, none waits behind one that it could run beside", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  const duration = fc.oneof(
    { weight: 4, arbitrary: fc.constant("SELECT 1") },
    {
      weight: 3,
      arbitrary: fc.integer({ min: 1, max: 60 }).map((ms) => `SELECT pg_sleep(${ms / 1000})`),
    },
    { weight: 1, arbitrary: fc.constant(long) },
  );
  const plans = fc.array(
    fc.record({
      max: fc.integer({ min: 0, max: 4 }),
      inputs: fc.array(duration, { minLength: 1, maxLength: 12 }),
    }),
    { minLength: 1, maxLength: 20 },
  );
  await fc.assert(
    fc.asyncProperty(plans, async (groups) => {
      const planned = groups.flatMap(({ max, inputs }, index) => {
        let left = max + 1;
        // The long tasks leave one place within the group's limit to the short tasks.
        return inputs.map((input) => {
          const fits = input !== long || (left -= 1) > 0;
          return { input: fits ? input : "SELECT 1", group: `random ${index}`, max };
        });
      });
      await expectNoneWaits(planned.filter((task, _, all) => !isLong(task) || all.filter(isLong).length <= 50));
    }),
    { numRuns: 8 },
  );
});

test("whatever dies while runs are taken back, none of them runs twice", async () => {
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  await client.query("CREATE SEQUENCE side");
  const input = "SELECT nextval('side')";
  const kills = [
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_work %'",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_task %' AND wait_event = 'advisory'",
    "SELECT",
  ];
  for (const kill of kills) {
    await warmUp();
    await client.query("TRUNCATE task");
    await client.query("ALTER SEQUENCE side RESTART");
    await gate.query("SELECT pg_advisory_lock(1)");
    const planned = ["SELECT pg_sleep(0.02)", long, ...Array.from({ length: 30 }, () => input)];
    const ids = await insert(planned.map((each) => ({ input: each, group: "warm 0" })));
    const [front] = ids.long;
    assert.ok(front !== undefined);
    await tasks.running(front);
    const waiting = ids.short.slice(1);
    await tasks.until(waiting, (row) => row.state === "PLAN");
    // The task whose session is killed must run again, in another session.
    await client.query(`${kill}${kill.includes("FROM") ? " AND datname = current_database()" : ""}`);
    await gate.query("SELECT pg_advisory_unlock(1)");
    const ended = await tasks.ended(front, ...ids.short);
    for (const { state } of ended) assert.equal(state, "DONE");
    const { rows } = await client.query("SELECT last_value::integer AS times FROM side");
    assert.deepEqual(rows, [{ times: waiting.length }]);
  }
});

import assert from "node:assert/strict";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { only, Tasks } from "../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const { database: name } = database.target;
const first = await database.connect();
await first.query(`ALTER DATABASE ${name} SET timezone = 'Europe/Berlin'`);
// The setting applies only to new sessions, so the tests use a second connection.
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** Returns the successor's plan and the expected plan, which is the first `step` after the task's stop. */
async function successorPlan(row: { id: string }, step: string): Promise<[string, string]> {
  const { found, expected } = await tasks.successor<{ found: string; expected: string }>(
    row.id,
    `n.plan::text AS found, (SELECT min(p.plan) FROM (SELECT ${step} AS plan FROM generate_series(1, 20000) AS i) AS p
       WHERE p.plan > t.stop)::text AS expected`,
  );
  return [found, expected];
}

const outage = { active: "200 years" };

for (const [plan, repeat] of [
  ["2024-01-31 12:00", "1 month"],
  ["2020-02-29 12:00", "1 year"],
  ["2023-08-31 12:00", "3 months"],
  ["2000-01-31 12:00", "1 month 1 day"],
  ["1960-12-31 23:59:59.5", "1 month"],
  ["2024-01-31 12:00", "1 month -1 day"],
] as const) {
  test(`§5 plan + n·repeat counts from the plan itself: ${repeat} from ${plan}`, async () => {
    const row = await tasks.run("SELECT 1", { plan, repeat, ...outage });
    const [found, expected] = await successorPlan(row, "t.plan + i * t.repeat");
    assert.equal(found, expected);
  });
}

test("§5 monthly from January 31 is the last day of each month, not the 28th from then on", async () => {
  const { rows } = await client.query<{ plan: string; wanted: string }>(
    `SELECT p.plan::text, (p.plan + (i + 1) * interval '1 month')::text AS wanted
     FROM (SELECT timestamptz '2000-01-31 12:00' AS plan) AS p, generate_series(1, 12000) AS i
     WHERE p.plan + i * interval '1 month' <= now() AND p.plan + (i + 1) * interval '1 month' > now()`,
  );
  const { plan, wanted } = only(rows);
  const row = await tasks.run("SELECT 1", { plan, repeat: "1 month", ...outage });
  const [found] = await successorPlan(row, "t.plan + i * t.repeat");
  assert.equal(found, wanted);
});

test("§5 a daily task keeps its hour in the database's time zone across daylight saving", async () => {
  for (const plan of ["2024-01-15 03:30", "2024-07-15 03:30"]) {
    const row = await tasks.run("SELECT 1", { plan, repeat: "1 day", ...outage });
    const [found, expected] = await successorPlan(row, "t.plan + i * t.repeat");
    assert.equal(found, expected);
    assert.match(found, / 03:30:00\+0[12]$/);
  }
});

test("§5 a task that repeats every 24 hours keeps its interval instead", async () => {
  for (const plan of ["2024-01-15 03:30", "2024-07-15 03:30"]) {
    const row = await tasks.run("SELECT 1", { plan, repeat: "24 hours", ...outage });
    assert.ok(await tasks.successorHolds(row.id, "extract(epoch FROM n.plan - t.plan)::bigint % 86400 = 0"));
  }
});

test("§5 with drift, a day is the database's day too", async () => {
  const row = await tasks.run("SELECT 1", { repeat: "200 days", drift: true });
  assert.ok(await tasks.successorHolds(row.id, "n.plan = t.stop + interval '200 days'"));
});

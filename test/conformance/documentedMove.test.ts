import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectPath } from "../support/project.js";
import { Tasks } from "../support/tasks.js";

const page = readFileSync(projectPath("docs/coming-from.md"), "utf8");
/** The statements for psql that move the jobs of pg_cron. */
const [, move = ""] = /^```text\n(BEGIN;\n.*?)^```$/ms.exec(page) ?? [];

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);

// What the statements use of pg_cron, which the embedded server does not have.
await client.query(`
  CREATE SCHEMA cron;
  CREATE TABLE cron.job (jobid bigint, schedule text, command text, database text, username text, active boolean, jobname text);
  CREATE FUNCTION cron.unschedule(bigint) RETURNS boolean LANGUAGE sql AS 'DELETE FROM cron.job WHERE jobid = $1 RETURNING true';
  INSERT INTO cron.job SELECT id, schedule, command, database, username, active, name FROM (VALUES
    (1, '0 3 * * *', 'SELECT 3', current_database(), 'app', true, 'nightly'),
    (2, '1 second', 'SELECT 1', current_database(), 'app', true, NULL),
    (3, '0 4 * * *', 'SELECT 4', current_database(), 'app', false, 'off'),
    (4, '30 seconds', 'SELECT 30', current_database(), 'app', false, 'often off'),
    (5, '@reboot', 'SELECT 5', current_database(), 'app', true, 'boot'),
    (6, '0 6 * * *', 'SELECT 6', 'other', 'app', true, 'elsewhere'),
    (7, '0 7 * * *', 'SELECT 7', current_database(), 'other', true, 'not mine')
  ) AS job (id, schedule, command, database, username, active, name)`);
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

test("the statements of docs/coming-from.md move the jobs of pg_cron", async () => {
  assert.ok(move.includes(":'entry_user'"));
  await client.query("SET cron.timezone = 'Europe/Berlin'");
  await client.query(`${move.replace(":'entry_user'", "'app'")}\nCOMMIT`);
  const { rows } = await client.query(
    `SELECT key, "group", rule, zone, repeat::text, keep::text, plan = 'infinity' AS paused, plan > now() AS later, input
     FROM task WHERE parent IS NULL ORDER BY id`,
  );
  const common = { keep: "7 days", later: true };
  const cron = { ...common, repeat: "00:00:00", zone: "Europe/Berlin" };
  const interval = { ...common, rule: null, zone: null };
  assert.deepEqual(
    rows.map(({ later, ...row }) => ({ ...row, later: row.key === "job 2" || later })),
    [
      { ...cron, key: "nightly", group: "nightly", rule: "0 3 * * *", paused: false, input: "SELECT 3" },
      { ...interval, key: "job 2", group: "job 2", repeat: "00:00:01", paused: false, input: "SELECT 1" },
      { ...cron, key: "off", group: "off", rule: "0 4 * * *", paused: true, input: "SELECT 4" },
      { ...interval, key: "often off", group: "often off", repeat: "00:00:30", paused: true, input: "SELECT 30" },
    ],
  );
  const left = await client.query("SELECT jobid FROM cron.job ORDER BY jobid");
  assert.deepEqual(
    left.rows.map(({ jobid }) => Number(jobid)),
    [5, 6, 7],
  );
  // The first run of an interval comes one interval after the move, as it would have come in pg_cron.
  const { rows: first } = await client.query<{ id: string; fits: boolean }>(
    "SELECT id, plan - created >= interval '1 second' AS fits FROM task WHERE key = 'job 2' AND parent IS NULL",
  );
  assert.equal(first[0]?.fits, true);
  const [ended] = await tasks.ended(first[0]?.id ?? "");
  assert.equal(ended?.state, "DONE");
});

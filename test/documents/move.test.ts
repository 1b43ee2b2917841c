import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after } from "node:test";
import { cli } from "../support/cli.js";
import { createDatabase, onServer } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectText } from "../support/project.js";
import { only, statesOf, Tasks } from "../support/tasks.js";
import { ensureTaskTable } from "../support/taskTables.js";
import { temporaryFolder } from "../support/temporaryFolder.js";

const page = projectText("docs/coming-from.md");
const blocks = [...page.matchAll(/^```(?:text|sql)\n(.*?)^```$/gms)].map(([, text = ""]) => text);
/** Returns the block of the page that begins with this text. */
const block = (begin: string): string => only(blocks.filter((text) => text.startsWith(begin)));
/** The statements for psql that move the jobs of pg_cron. */
const move = block("BEGIN;");
/** The statements that begin the session: they set the search_path and read the jobs. */
const begin = block("SET search_path");
/** The statement that joins the earlier runs with the moved jobs. */
const earlier = block("SELECT m.key");
/** The statement that names the jobs that cannot move. */
const look = block("DO $$");
/** The commands for psql that copy the jobs to another database, and the statement that ends them in the first one. */
const copy = block("\\copy ");
const unschedule = block("SELECT cron.unschedule");
/** The function that does what cron.schedule does. */
const scheduleJob = block("CREATE FUNCTION schedule_job");
/** The query that shows what cron.job_run_details shows. */
const details = block("SELECT key AS job");

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
/** The user and the schema of an entry beside the one with the table in `public`. */
const user = `app_${database.target.database}`;
await client.query(`CREATE ROLE ${user} LOGIN`);
// The database, in which the role owns objects, has been dropped by then.
after(() => onServer((server) => server.query(`DROP ROLE ${user}`)));
await client.query(`CREATE SCHEMA jobs AUTHORIZATION "${user}"`);
await ensureTaskTable({ ...database.target, user }, { schema: "jobs" });

/** What psql sends after `-U app_tasks -v schema=jobs`. */
const asUser = (statements: string): string =>
  `SET SESSION AUTHORIZATION "${user}";${statements.replace(':"schema"', "jobs")}`;

// What the statements use of pg_cron, which the embedded server does not have.
await client.query(`
  CREATE SCHEMA cron;
  CREATE TABLE cron.job (jobid bigint, schedule text, command text, database text, username text, active boolean, jobname text);
  CREATE TABLE cron.job_run_details (jobid bigint, status text, return_message text, start_time timestamptz);
  GRANT USAGE ON SCHEMA cron TO PUBLIC;
  GRANT SELECT ON ALL TABLES IN SCHEMA cron TO PUBLIC;
  CREATE FUNCTION cron.unschedule(bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM cron.job WHERE jobid = $1 RETURNING true';
  INSERT INTO cron.job SELECT id, schedule, command, database, replace(username, 'app', '${user}'), active, name FROM (VALUES
    (1, '0 3 * * *', 'SELECT 3', current_database(), 'app', true, 'nightly'),
    (2, '1 Second', 'SELECT 1', current_database(), 'app', true, NULL),
    (3, '0 4 * * *', 'SELECT 4', current_database(), 'app', false, 'off'),
    (4, '30 seconds', 'SELECT 30', current_database(), 'app', false, 'often off'),
    (5, '@reboot', 'SELECT 5', current_database(), 'app', true, 'boot'),
    (6, '0 6 * * *', 'SELECT 6', 'other', 'app', true, 'elsewhere'),
    (7, '0 7 * * *', 'SELECT 7', current_database(), 'other', true, 'not mine')
  ) AS job (id, schedule, command, database, username, active, name)`);
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

const jobsLeft = () => tasks.value<string[]>("SELECT ARRAY(SELECT jobid::text FROM cron.job ORDER BY jobid)");

test("the statements of docs/coming-from.md move the jobs of pg_cron", async () => {
  const mover = await database.connect();
  await mover.query(asUser(begin));
  await mover.query("SET cron.timezone = 'Europe/Berlin'");
  const results: unknown = await mover.query(`${move}\nCOMMIT`);
  assert.ok(Array.isArray(results));
  assert.deepEqual(results.at(-2).rows, [
    { what: "moved", jobs: "4", names: "nightly, job 2, off, often off" },
    { what: "stays: @reboot", jobs: "1", names: "boot" },
    { what: "stays: database other", jobs: "1", names: "elsewhere" },
    { what: "stays: user other", jobs: "1", names: "not mine" },
  ]);
  assert.match(page, / moved +\| +4 \| nightly, job 2, off, often off\n stays: @reboot +\| +1 \| boot\n/);
  const rows = await tasks.rows(
    `SELECT key, "group", rule, zone, repeat::text, keep::text, "delete", plan = 'infinity' AS paused,
       plan > created AS later, input
     FROM jobs.task WHERE parent IS NULL ORDER BY id`,
  );
  const common = { keep: "7 days", delete: false, later: true };
  const cron = { ...common, repeat: "00:00:00", zone: "Europe/Berlin" };
  const interval = { ...common, rule: null, zone: null };
  assert.deepEqual(rows, [
    { ...cron, key: "nightly", group: "nightly", rule: "0 3 * * *", paused: false, input: "SELECT 3" },
    { ...interval, key: "job 2", group: "job 2", repeat: "00:00:01", paused: false, input: "SELECT 1" },
    { ...cron, key: "off", group: "off", rule: "0 4 * * *", paused: true, input: "SELECT 4" },
    { ...interval, key: "often off", group: "often off", repeat: "00:00:30", paused: true, input: "SELECT 30" },
  ]);
  assert.deepEqual(await tasks.rows("SELECT FROM public.task"), []);
  assert.deepEqual(await jobsLeft(), ["5", "6", "7"]);
  // The first run of an interval comes one interval after the move, as it would have come in pg_cron.
  assert.ok(await tasks.value("SELECT plan - created >= interval '1 second' FROM jobs.task WHERE key = 'job 2'"));
  await client.query(
    "INSERT INTO cron.job_run_details VALUES (1, 'succeeded', '1 row', now()), (3, 'failed', '', now())",
  );
  const { rows: runs } = await mover.query<{ key: string; status: string }>(earlier);
  assert.deepEqual(
    runs.map(({ key, status }) => ({ key, status })),
    [{ key: "nightly", status: "succeeded" }],
  );
});

test("what pg_cron reads of a schedule is moved", async () => {
  const schedules = [
    ["* * * * * *", "* * * * *"],
    ["*/1 * * * 6#1", "*/1 * * * 6"],
    ["0 3 * * 1,FRI-SUN/2?,4 extra words", "0 3 * * 1,FRI-SUN/2"],
    [" 5-10/2;\t*;3x.. 1 JAN *!", "5-10/2\t* 1 JAN *"],
    ["@daily at night", "@daily"],
    ["0 10 $ * *", "0 10 $ * *"],
    ["0,30 8-17 * * MON-FRI", "0,30 8-17 * * MON-FRI"],
    ["1 2 3", "1 2 3"],
  ] as const;
  await client.query("BEGIN");
  await client.query("DELETE FROM cron.job");
  await client.query(
    "INSERT INTO cron.job SELECT position, schedule FROM unnest($1::text[]) WITH ORDINALITY AS job(schedule, position)",
    [schedules.map(([schedule]) => schedule)],
  );
  await client.query(begin.replace(':"schema"', "public"));
  const read = await tasks.value("SELECT jsonb_agg(jsonb_build_array(schedule, ltrim(rule)) ORDER BY jobid) FROM job");
  await client.query("ROLLBACK");
  assert.deepEqual(read, schedules);
});

test("a statement of docs/coming-from.md names the jobs that cannot move", async () => {
  await client.query(`
    BEGIN;
    INSERT INTO cron.job SELECT id, schedule, 'SELECT 1', current_database(), current_user, true, name FROM (VALUES
      (20, '0 0 31 2 *', 'leap'),
      (21, '61 * * * *', NULL),
      (22, '10 SECONDS', 'fine'),
      (23, '@daily', 'fine, too'),
      (24, '0 5 * * *', 'taken'),
      (25, '* * * * * *', 'more')
    ) AS job (id, schedule, name);
    INSERT INTO task (key, rule, input) VALUES ('taken', '@yearly', 'SELECT 1')`);
  const notices: string[] = [];
  const listen = ({ message }: { message?: string | undefined }): unknown => notices.push(message ?? "");
  client.on("notice", listen);
  await client.query(`${begin.replace(':"schema"', "public")}${look}`);
  client.off("notice", listen);
  await client.query("ROLLBACK");
  assert.deepEqual(notices.toSorted(), [
    `job "job 21": rule "61 * * * *": minute: '61' is not within 0-59`,
    'job "leap": rule "0 0 31 2 *" never comes',
    'job "more": pg_cron reads "* * * * * *" as "* * * * *"',
    'job "taken": a task with this key waits or runs',
  ]);
});

const env = { DATABASE_URL: database.url };

const hasPsql = spawnSync("psql", ["--version"]).error === undefined;

test("the jobs of other databases are copied there, and moved", async (context) => {
  if (!hasPsql) return context.skip("psql is not installed");
  const shop = await createDatabase();
  const shopClient = await shop.connect();
  const { database: name } = shop.target;
  await client.query("UPDATE cron.job SET database = $1 WHERE jobid = 6", [name]);
  const psql = spawnSync("psql", ["-X", "-v", "ON_ERROR_STOP=1", database.url], {
    input: copy.replace("\\connect shop", `\\connect ${name}`).replaceAll("app_tasks", user),
    cwd: await temporaryFolder(),
    encoding: "utf8",
  });
  assert.equal(psql.status, 0, psql.stderr);
  const withoutEnd = move.replace(/^SELECT cron\.unschedule.*\n/m, "");
  assert.ok(withoutEnd !== move);
  await shopClient.query(`CREATE SCHEMA jobs AUTHORIZATION "${user}"`);
  await ensureTaskTable({ ...shop.target, user }, { schema: "jobs" });
  await shopClient.query(asUser(`${begin}${withoutEnd}`));
  await client.query(unschedule.replace("'shop'", `'${name}'`).replace("'app_tasks'", `'${user}'`));
  await shopClient.query("COMMIT; DROP VIEW job; RESET SESSION AUTHORIZATION; DROP TABLE cron.job; DROP SCHEMA cron");
  const moved = await shopClient.query("SELECT key, rule, zone, input FROM jobs.task");
  assert.deepEqual(moved.rows, [{ key: "elsewhere", rule: "0 6 * * *", zone: "GMT", input: "SELECT 6" }]);
  assert.deepEqual(await jobsLeft(), ["5", "7"]);
});

/** The rows of a job that wait or run. */
const active = (key: string): Promise<object[]> =>
  tasks.rows(
    `SELECT id, state, rule, zone, repeat::text, keep::text, "delete", input FROM task
     WHERE key = $1 AND state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id`,
    [key],
  );

test("the function of docs/coming-from.md schedules jobs by rules and intervals, and changes them", async () => {
  await client.query(scheduleJob);
  const schedule = (key: string, when: string, input = "SELECT 1"): Promise<string> =>
    tasks.value("SELECT schedule_job($1, $2, $3)", [key, when, input]);
  const common = { state: "PLAN", keep: "7 days", delete: false };
  const rule = { ...common, rule: "0 5 1 1 *", zone: "UTC", repeat: "00:00:00" };
  const interval = { ...common, rule: null, zone: null, repeat: "00:00:30" };
  await client.query("BEGIN");
  const id = await schedule("job", "30 seconds");
  assert.ok(await tasks.holds(id, "plan - now() = interval '30 seconds'"));
  await client.query("COMMIT");
  assert.deepEqual(await active("job"), [{ ...interval, id, input: "SELECT 1" }]);
  assert.equal(await schedule("job", "0 5 1 1 *", "SELECT 2"), id);
  assert.deepEqual(await active("job"), [{ ...rule, id, input: "SELECT 2" }]);
  assert.ok(await tasks.holds(id, "plan = task_next(rule, zone)"));
  // From a rule to an interval. The same interval once more does not move the next run.
  await client.query("BEGIN");
  await schedule("job", "30 seconds");
  assert.ok(await tasks.holds(id, "plan - now() = interval '30 seconds'"));
  await client.query("UPDATE task SET plan = '2199-01-01 00:00Z' WHERE id = $1", [id]);
  await schedule("job", "30 seconds");
  assert.ok(await tasks.holds(id, "plan = '2199-01-01 00:00Z'"));
  await client.query("COMMIT");
  // A paused job stays paused.
  await client.query("UPDATE task SET plan = 'infinity' WHERE id = $1", [id]);
  for (const when of ["0 5 1 1 *", "30 seconds"]) {
    await schedule("job", when);
    assert.ok(await tasks.holds(id, `plan = 'infinity' AND concat(rule) = '${when.includes("*") ? when : ""}'`));
  }
  // While the job runs, a new row replaces it, in the zone of the running one.
  const { wait, open } = await tasks.gate();
  const running = await schedule("long", "0 5 1 1 *", wait);
  await client.query(`UPDATE task SET zone = 'Asia/Tokyo' WHERE id = ${running}`);
  await client.query(`UPDATE task SET plan = now() WHERE id = ${running}`);
  await tasks.running(running);
  const next = await schedule("long", "0 6 1 1 *", "SELECT 3");
  const own = { id: next, input: "SELECT 3" };
  assert.deepEqual((await active("long"))[1], { ...rule, ...own, rule: "0 6 1 1 *", zone: "Asia/Tokyo" });
  await schedule("long", "30 seconds", "SELECT 3");
  assert.notEqual(next, running);
  await open();
  assert.equal((await tasks.end(running)).state, "DONE");
  assert.deepEqual(await active("long"), [{ ...interval, ...own }]);
  const runs = await tasks.rows<Record<"job" | "run" | "status" | "message", string>>(details);
  assert.deepEqual(
    runs.filter(({ job }) => job === "long").map(({ run, status, message }) => ({ run, status, message })),
    [{ run: running, status: "DONE", message: null }],
  );
});

test("the function of docs/coming-from.md keeps the zone of a job, unless it is given another", async () => {
  for (const [when, given, zone] of [
    ["0 5 1 1 *", ["Asia/Tokyo"], "Asia/Tokyo"],
    ["0 6 1 1 *", [], "Asia/Tokyo"],
    ["0 6 1 1 *", ["Europe/Berlin"], "Europe/Berlin"],
    ["0 6 1 1 *", [], "Europe/Berlin"],
    ["30 seconds", [], null],
    ["0 6 1 1 *", [], "UTC"],
  ] as const) {
    const id = await tasks.value<string>(`SELECT schedule_job($1, $2, $3${given.length > 0 ? ", $4" : ""})`, [
      "zoned",
      when,
      "SELECT 1",
      ...given,
    ]);
    assert.equal(await tasks.value("SELECT zone FROM task WHERE key = 'zoned'"), zone);
    assert.ok(await tasks.holds(id, "rule IS NULL OR plan = task_next(rule, zone)"));
  }
});

const scheduleWith = (...job: (string | null)[]): Promise<unknown> =>
  client.query("SELECT schedule_job($1, $2, $3)", job);

test("the function of docs/coming-from.md takes every kind of interval, and refuses what would never run", async () => {
  for (const [schedule, repeat] of [
    ["1 second", "00:00:01"],
    ["10 secs", "00:00:10"],
    ["5 min", "00:05:00"],
    ["2 hrs", "02:00:00"],
    ["1h 30m 15s", "01:30:15"],
    ["1 minute", "00:01:00"],
    ["90 Minutes", "01:30:00"],
    ["2 hours", "02:00:00"],
    ["1 hour 30 minutes", "01:30:00"],
    ["1 day", "1 day"],
    ["2 weeks", "14 days"],
  ] as const) {
    await client.query("BEGIN");
    await scheduleWith("often", schedule, "SELECT 1");
    const rows = await tasks.rows(
      `SELECT rule, zone, repeat::text, plan - now() = repeat AS later FROM task WHERE key = 'often'`,
    );
    await client.query("ROLLBACK");
    assert.deepEqual(rows, [{ rule: null, zone: null, repeat, later: true }], schedule);
  }
  for (const zero of ["0 seconds", "00 minutes", "0 hours 0 minutes"]) {
    await assert.rejects(scheduleWith("never", zero, "SELECT 1"), {
      message: `the interval of job "never" must be above 0: ${zero}`,
    });
  }
  const incomplete = { message: "a job needs a name, a schedule and a command" };
  for (const job of [
    [null, "1 minute", "SELECT 1"],
    ["never", null, "SELECT 1"],
    ["never", "0 3 * * *", null],
    ["never", "0 3 * * *", ""],
    ["never", "0 3 * * *", " \n"],
  ])
    await assert.rejects(scheduleWith(...job), incomplete);
  await assert.rejects(scheduleWith("never", "sometimes", "SELECT 1"), /sometimes/);
  assert.deepEqual(await active("never"), []);
});

const run = async (...args: string[]): Promise<void> => assert.equal((await cli(args, { env })).code, 0);

test("a pause of the schedule skips times that pass, and a pause of its group delays one", async () => {
  const insert = (key: string, plan: string): Promise<string> =>
    tasks.add("SELECT 1", { key, group: key, repeat: "1 day", plan, delete: false });
  const [passed, old] = await tasks.value<[string, string]>(
    "SELECT ARRAY[(now() - interval '10 minutes')::text, (now() - interval '2 hours')::text]",
  );
  const skips = await insert("skips", "2199-01-01 00:00Z");
  await run("pause", "--key", "skips");
  // As the manager, a session can let the time pass.
  await client.query("SET pgtask.manager = on");
  await client.query("UPDATE task SET due = $1 WHERE id = $2", [passed, skips]);
  await client.query("RESET pgtask.manager");
  await run("resume", "--key", "skips");
  assert.ok(await tasks.holds(skips, `state = 'PLAN' AND plan = timestamptz '${passed}' + interval '1 day'`));
  for (const group of ["late", "too late"]) await run("pause", "--group", group);
  const late = await insert("late", passed);
  const tooLate = await insert("too late", old);
  for (const group of ["late", "too late"]) await run("resume", "--group", group);
  assert.deepEqual(statesOf(await tasks.ended(late, tooLate)), ["DONE", "GONE"]);
});

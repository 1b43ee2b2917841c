import assert from "node:assert/strict";
import { cli, failsWith } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { serve } from "../../support/serve.js";
import { createRole } from "../../support/taskTables.js";
import { eventually } from "../../support/tasks.js";

const { database, client, tasks } = await serve();
const facade = (url = database.url) => cli(["facade", "cron"], { env: { DATABASE_URL: url } });

const created = await facade();
assert.equal(created.code, 0, created.stderr);

const job = (id: string): Promise<object[]> =>
  tasks.rows(
    "SELECT schedule, command, database = current_database() AS here, active, jobname FROM cron.job WHERE jobid = $1",
    [id],
  );
const shown = { command: "SELECT 1", here: true, active: true };

test("says what it has done, and can be called again", async () => {
  assert.equal(created.stdout, 'the functions and views of schema cron now plan and show jobs of "public"."task"\n');
  assert.equal((await facade()).code, 0);
});

test("a migration for pg_cron runs as it is", async () => {
  const id = await tasks.value<string>("SELECT cron.schedule('nightly', '30 3 * * * ignored', 'SELECT 1')");
  assert.deepEqual(await job(id), [{ ...shown, schedule: "30 3 * * *", jobname: "nightly" }]);
  assert.equal(await tasks.value("SELECT cron.schedule('nightly', '45 3 * * *', 'SELECT 1')"), id);
  assert.deepEqual(await job(id), [{ ...shown, schedule: "45 3 * * *", jobname: "nightly" }]);
  assert.equal(await tasks.value("SELECT zone FROM task WHERE key = 'cron ' || $1", [id]), "GMT");
  assert.equal(await tasks.value("SELECT cron.unschedule('nightly')"), true);
  assert.deepEqual(await job(id), []);
});

test("each job without a name is another one", async () => {
  const schedule = "SELECT cron.schedule('0 10 * * *', 'SELECT 1')";
  const [first, second] = [await tasks.value(schedule), await tasks.value(schedule)];
  assert.notEqual(first, second);
  for (const id of [first, second]) await client.query("SELECT cron.unschedule($1::bigint)", [id]);
});

test("a job that runs every second shows its runs, also after it has ended", async () => {
  const id = await tasks.value<string>("SELECT cron.schedule('every', '1 second', 'SELECT 6 * 7')");
  assert.deepEqual(await job(id), [{ ...shown, schedule: "1 seconds", command: "SELECT 6 * 7", jobname: "every" }]);
  const runs = `SELECT status, return_message, command, username = current_user AS mine, job_pid > 0 AS run, end_time >= start_time AS ended
    FROM cron.job_run_details WHERE jobid = ${id} AND status = 'succeeded' ORDER BY runid LIMIT 1`;
  const [run] = await eventually(client, runs);
  assert.deepEqual(run, {
    status: "succeeded",
    return_message: "42",
    command: "SELECT 6 * 7",
    mine: true,
    run: true,
    ended: true,
  });
  await client.query("SELECT cron.unschedule('every')");
  await eventually(
    client,
    `SELECT FROM task WHERE key = 'cron ${id}' AND state IN ('TAKE', 'WORK')`,
    ({ length }) => length === 0,
  );
  const counted = `SELECT count(*)::integer AS n FROM cron.job_run_details WHERE jobid = ${id}`;
  assert.ok((await tasks.value<number>(counted)) > 0);
  await client.query(`DELETE FROM cron.job_run_details WHERE jobid = ${id} AND end_time < now() + interval '1 day'`);
  assert.equal(await tasks.value(counted), 0);
});

test("a run that fails shows its error", async () => {
  const id = await tasks.value<string>("SELECT cron.schedule('fails', '1 second', 'SELECT 1/0')");
  await eventually(
    client,
    `SELECT FROM cron.job_run_details WHERE jobid = ${id} AND status = 'failed' AND return_message LIKE 'ERROR:  division by zero%' LIMIT 1`,
  );
  await client.query("SELECT cron.unschedule('fails')");
});

test("alter_job changes what it is given, and nothing else", async () => {
  const id = await tasks.value<string>("SELECT cron.schedule('altered', '0 3 * * *', 'SELECT 1')");
  await client.query(`SELECT cron.alter_job(${id}, schedule := '0 4 * * *')`);
  await client.query(`SELECT cron.alter_job(${id}, active := false)`);
  assert.deepEqual(await job(id), [{ ...shown, schedule: "0 4 * * *", active: false, jobname: "altered" }]);
  await client.query(
    `SELECT cron.alter_job(${id}, command := 'SELECT 2', database := current_database(), username := current_user)`,
  );
  await client.query(`SELECT cron.alter_job(${id}, active := true)`);
  assert.deepEqual(await job(id), [{ ...shown, schedule: "0 4 * * *", command: "SELECT 2", jobname: "altered" }]);
  await client.query(`SELECT cron.unschedule(${id})`);
});

test("a job is active or not from its beginning", async () => {
  const id = await tasks.value<string>(
    "SELECT cron.schedule_in_database('off', '0 3 * * *', 'SELECT 1', current_database(), active := false)",
  );
  assert.deepEqual(await job(id), [{ ...shown, schedule: "0 3 * * *", active: false, jobname: "off" }]);
  await client.query(`SELECT cron.unschedule(${id})`);
});

test("the view of jobs can be written", async () => {
  const [added] = await tasks.rows<{ jobid: string }>(
    "INSERT INTO cron.job (schedule, command, nodename, nodeport, database, username, jobname) VALUES ('0 3 * * *', 'SELECT 1', '', 5432, current_database(), current_user, 'row') RETURNING jobid",
  );
  const id = added?.jobid ?? "";
  await client.query(
    "UPDATE cron.job SET schedule = '0 5 * * *', active = false, jobname = 'renamed' WHERE jobname = 'row'",
  );
  assert.deepEqual(await job(id), [{ ...shown, schedule: "0 5 * * *", active: false, jobname: "renamed" }]);
  await assert.rejects(client.query(`UPDATE cron.job SET jobid = 99 WHERE jobid = ${id}`), { code: "0A000" });
  await client.query(`DELETE FROM cron.job WHERE jobid = ${id}`);
  assert.deepEqual(await job(id), []);
});

for (const [title, call, code, message] of [
  ["an unknown name", "unschedule('unknown')", "P0002", "could not find valid entry for job 'unknown'"],
  ["an unknown id", "unschedule(999)", "P0002", "could not find valid entry for job '999'"],
  ["a change of an unknown job", "alter_job(999)", "P0002", "Job 999 does not exist or you don't own it"],
  ["no name", "schedule(NULL, '0 3 * * *', 'SELECT 1')", "22023", "job_name can not be NULL"],
  ["a wrong schedule", "schedule('x', '61 3 * * *', 'SELECT 1')", "22023", /61/],
  ["@reboot", "schedule('x', '@reboot', 'SELECT 1')", "22023", "@reboot is not a time"],
  ["another database", "schedule_in_database('x', '0 3 * * *', 'SELECT 1', 'elsewhere')", "0A000", /elsewhere/],
  [
    "another role",
    "schedule_in_database('x', '0 3 * * *', 'SELECT 1', current_database(), 'somebody')",
    "0A000",
    /somebody/,
  ],
] as const) {
  test(`${title} is refused`, async () => {
    await assert.rejects(client.query(`SELECT cron.${call}`), { code, message });
    assert.equal(await tasks.value("SELECT count(*)::integer FROM cron.job WHERE jobname = 'x'"), 0);
  });
}

test("each role has jobs of its own", async () => {
  const role = await createRole(client, `cron_${database.target.database}`);
  const session = await database.connect();
  await client.query(`GRANT SELECT, INSERT, UPDATE ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role};
    GRANT SELECT ON task_owed, task_schedules, task_pause TO ${role}; GRANT USAGE ON SCHEMA cron TO ${role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON cron.pg_task_job TO ${role}; GRANT SELECT ON cron.job TO ${role}`);
  await client.query("SELECT cron.schedule('shared name', '0 3 * * *', 'SELECT 1')");
  await session.query(`SET ROLE ${role}`);
  await session.query("SELECT cron.schedule('shared name', '0 4 * * *', 'SELECT 2')");
  const { rows } = await session.query("SELECT command, username = current_user AS mine FROM cron.job");
  assert.deepEqual(rows, [{ command: "SELECT 2", mine: true }]);
  await session.query("SELECT cron.unschedule('shared name')");
  await assert.rejects(session.query("SELECT cron.unschedule('shared name')"), { code: "P0002" });
  await client.query("SELECT cron.unschedule('shared name')");
});

test("refuses where pg_cron or another schema of this name is", async () => {
  const other = await createDatabase();
  const there = await other.connect();
  await there.query("CREATE SCHEMA cron");
  await failsWith(facade(other.url), 4, /the schema cron exists, and pg-task did not create it/);
  // An extension needs files on the server, so its entry in the catalog has to do.
  await there.query(`DROP SCHEMA cron; UPDATE pg_extension SET extname = 'pg_cron' WHERE extname = 'plpgsql'`);
  await failsWith(facade(other.url), 4, /pg_cron is installed in this database/);
});

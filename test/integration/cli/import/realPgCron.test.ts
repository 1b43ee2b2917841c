import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import { connectTo } from "../../../support/connectTo.js";
import { cli, linesOf } from "../../../support/cli.js";
import { debianPostgres } from "../../../support/debianPackage.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { eventually } from "../../../support/tasks.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";

const installed = await debianPostgres("postgresql-15-cron", "/usr/lib/postgresql/15/lib/pg_cron.so");

const owners = ["alice", "bob", "carol", "postgres"];
const databases = ["shop", "stock", "postgres"];

/** The owner, the database, the schedule and the command of each job. The third runs every minute. */
const given: readonly (readonly [owner: string, database: string, schedule: string, command: string])[] = [
  ["alice", "shop", "0 3 * * *", "VACUUM"],
  ["alice", "shop", "*/5 * * * *", "SELECT 2"],
  ["alice", "shop", "* * * * *", "INSERT INTO ran VALUES (current_user)"],
  ["alice", "stock", "0 4 28 * *", "SELECT 4"],
  ["bob", "shop", "0 0 13 * 5", "SELECT 5"],
  ["bob", "shop", "0 0 */2 * 1", "SELECT 6"],
  ["bob", "stock", "30 4 * 1-3 mon,wed", "SELECT 7"],
  ["bob", "stock", "@daily", "SELECT 8"],
  ["bob", "postgres", "0 5 * * *", "SELECT 9"],
  ["carol", "shop", "0 0 3 * * *", "SELECT 10"],
  ["carol", "stock", "15 * * * *", "SELECT 11"],
  ["carol", "stock", "0 6 * * 1-5", "SELECT 12; SELECT 13"],
  ["carol", "postgres", "0 7 1 * *", "SELECT 14"],
  ["postgres", "shop", "0 8 1 1 *", "SELECT 15"],
  ["postgres", "stock", "5,35 9-17 * * *", "SELECT 16"],
  ["postgres", "postgres", "0 10 * * *", "SELECT 17"],
  ["postgres", "postgres", "0 11 * * 7", "SELECT 18"],
  ["postgres", "shop", "@reboot", "SELECT 19"],
];

const counts = (lines: readonly string[]): number[] =>
  ["same", "differs", "not mapped"].map((mapping) => lines.filter((line) => line.split("\t")[1] === mapping).length);

test("18 jobs of four owners in three databases move here from pg_cron, run, and move back", async (context) => {
  if (installed === null) return context.skip("needs the package postgresql-15-cron of Debian");
  const server = await RestartableServer.started(
    {
      shared_preload_libraries: "pg_cron",
      "cron.use_background_workers": "on",
      "cron.timezone": "Europe/Berlin",
      max_worker_processes: 20,
    },
    installed,
  );
  const open = async (database: string) => {
    const client = await connectTo({
      host: "127.0.0.1",
      port: server.port,
      user: "postgres",
      database,
      sslmode: "disable",
      connectTimeoutMs: 10_000,
    });
    after(() => client.end());
    return client;
  };
  const admin = await open("postgres");
  for (const owner of owners.slice(0, 3)) await admin.query(`CREATE ROLE ${owner} LOGIN`);
  for (const database of databases.slice(0, 2)) await admin.query(`CREATE DATABASE ${database}`);
  await admin.query("CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO PUBLIC");
  for (const database of databases) {
    const each = await open(database);
    for (const owner of owners) await each.query(`CREATE SCHEMA "jobs ${owner}" AUTHORIZATION ${owner}`);
    await each.query(
      "CREATE TABLE public.ran (who text, at timestamptz DEFAULT clock_timestamp()); GRANT INSERT ON public.ran TO PUBLIC",
    );
  }
  for (const [owner, database, schedule, command] of given) {
    await admin.query(
      `SELECT cron.schedule_in_database('${schedule} of ${owner} in ${database}', '${schedule}', '${command}', '${database}', '${owner}')`,
    );
  }
  // Its history begins there.
  await eventually(admin, "SELECT FROM cron.job_run_details WHERE status = 'succeeded'", (runs) => runs.length > 0);

  const cwd = await temporaryFolder();
  const entries = databases.flatMap((data) => owners.map((user) => ({ data, user, schema: `jobs ${user}` })));
  const configuration = { url: server.url, "pg_task.json": entries, "pg_task.sleep": 50 };
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify(configuration));
  const pgTask = new PgTask();
  await pgTask.start(configuration);
  const from = ["--from", server.url];
  const run = async (...options: string[]): Promise<string[]> => {
    const { code, stdout, stderr } = await cli(["import", "pg_cron", ...from, ...options], { cwd });
    assert.equal(code, 0, stderr);
    return linesOf(stdout);
  };

  const shown = await run();
  assert.deepEqual(counts(shown), [16, 1, 1], shown.join("\n"));
  assert.match(shown.join("\n"), /pg_cron 10\tdiffers\t.*pg_cron reads "0 0 3 \* \* \*" as "0 0 3 \* \*"/);
  assert.match(shown.join("\n"), /pg_cron 18\tnot mapped\t.*@reboot/);
  const active = async (): Promise<number> => {
    const { rows } = await admin.query<{ n: number }>("SELECT count(*)::int AS n FROM cron.job WHERE active");
    return rows[0]?.n ?? -1;
  };
  assert.equal(await active(), 18);

  await run("--apply");
  assert.equal(await active(), 1);
  const shop = await open("shop");
  // The job that runs every minute does so here.
  await eventually(
    shop,
    `SELECT FROM "jobs alice".task WHERE key = 'pg_cron 3' AND state = 'DONE'`,
    (runs) => runs.length > 0,
  );

  assert.deepEqual(counts(await run("--apply")), [16, 1, 1]);
  const all: { key: string }[] = [];
  for (const database of databases) {
    const each = await open(database);
    for (const owner of owners)
      all.push(
        ...(
          await each.query<{ key: string }>(
            `SELECT key FROM "jobs ${owner}".task WHERE state IN ('PLAN', 'TAKE', 'WORK')`,
          )
        ).rows,
      );
  }
  assert.equal(new Set(all.map(({ key }) => key)).size, 17);
  assert.equal(all.length, 17);

  const back = await run("--back");
  assert.equal(back.filter((line) => line.includes("\truns there\t")).length, 17);
  assert.equal(await active(), 18);
  const { rows: last } = await admin.query("SELECT coalesce(max(runid), 0) AS run FROM cron.job_run_details");
  await eventually(
    admin,
    `SELECT FROM cron.job_run_details WHERE runid > ${last[0]?.run} AND status = 'succeeded' AND jobid = 3`,
    (runs) => runs.length > 0,
  );
  // Each minute has come once, there or here, and always as its owner.
  const { rows: minutes } = await shop.query(
    `SELECT count(*) = extract(epoch FROM date_trunc('minute', max(at)) - date_trunc('minute', min(at))) / 60 + 1 AS every,
       count(DISTINCT date_trunc('minute', at)) = count(*) AS once, string_agg(DISTINCT who, ', ') AS who FROM public.ran`,
  );
  assert.deepEqual(minutes, [{ every: true, once: true, who: "alice" }]);
});

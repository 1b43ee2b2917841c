import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after } from "node:test";
import { connectTo } from "../../../support/connectTo.js";
import { commandsOn, linesOf } from "../../../support/cli.js";
import { debianPostgres } from "../../../support/debianPackage.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { eventually } from "../../../support/tasks.js";
import type { Client } from "../../../../src/shared/postgres/client.js";

const installed = await debianPostgres("pgagent", "/usr/share/postgresql/15/extension/pgagent.control");
const why = "needs the packages postgresql-15 and pgagent of Debian";

async function startServer(): Promise<{ readonly url: string; readonly client: Client; readonly place: string }> {
  const server = await RestartableServer.started({}, installed);
  const target = {
    host: "127.0.0.1",
    port: server.port,
    user: "postgres",
    database: "postgres",
    sslmode: "disable",
    connectTimeoutMs: 10_000,
  } as const;
  const client = await connectTo(target);
  after(() => client.end());
  await client.query("CREATE EXTENSION pgagent");
  return { url: server.url, client, place: `host=127.0.0.1 port=${server.port} dbname=postgres user=postgres` };
}

/** The steps of jobs, each with what happens after an error (f, s or i). Those with a question mark fail. */
const jobs = ["f", "f? f", "s? f", "i? f", "f i? f", "i? f? f", "f i? i f", "i f i? f"];

test("steps run here as the real pgAgent runs them, and its runs are copied", async (context) => {
  if (installed === null) return context.skip(why);
  const { url, client, place } = await startServer();
  await client.query("CREATE TABLE mark (who text)");
  for (const job of jobs) {
    await client.query(`INSERT INTO pgagent.pga_job (jobjclid, jobname) VALUES (1, '${job}');
      INSERT INTO pgagent.pga_schedule (jscjobid, jscname, jscstart) VALUES (lastval(), 'every minute', now() - interval '1 d')`);
    for (const [index, step] of job.split(" ").entries()) {
      const name = `${job}, ${index}`;
      const code = step.endsWith("?") ? `SELECT 1/0` : `INSERT INTO public.mark VALUES ('${name}')`;
      await client.query(
        "INSERT INTO pgagent.pga_jobstep (jstjobid, jstname, jstkind, jstcode, jstdbname, jstonerror) SELECT max(jobid), $1, 's', $2, 'postgres', $3 FROM pgagent.pga_job",
        [String(index), code, step.charAt(0)],
      );
    }
  }
  const marks = async (): Promise<string[]> =>
    (await client.query<{ who: string }>("SELECT DISTINCT who FROM mark ORDER BY who")).rows.map(({ who }) => who);

  const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
  const agent = spawn("/usr/bin/pgagent", ["-f", "-t", "1", place], { stdio: "ignore", ...nobody });
  const ended = once(agent, "exit");
  after(() => agent.kill("SIGKILL"));
  await eventually<{ n: number }>(
    client,
    `SELECT count(DISTINCT jlgjobid)::int AS n FROM pgagent.pga_joblog WHERE jlgstatus IN ('s', 'f')`,
    ([row]) => row?.n === jobs.length,
  );
  agent.kill("SIGKILL");
  await ended;
  const there = await marks();
  assert.ok(there.length > jobs.length / 2);
  await client.query("TRUNCATE mark");

  const pgTask = new PgTask();
  await pgTask.start({ url, "pg_task.sleep": 50 });
  const { run } = commandsOn({ url });
  const { code, stdout, stderr } = await run("import", "pgagent", "--apply");
  assert.equal(code, 0, stderr);
  assert.equal(linesOf(stdout).length, jobs.length);
  assert.doesNotMatch(stdout, /not mapped/);
  const { rows: copied } = await client.query(
    "SELECT DISTINCT key, state::text FROM task WHERE state IN ('DONE', 'FAIL') AND key LIKE 'pgagent %' ORDER BY key, state",
  );
  assert.equal(copied.length, jobs.length);
  for (const [index] of jobs.entries()) await run("run-now", "--key", `pgagent ${index + 1}.${index + 1}`);
  // Each schedule has a successor, and no step waits or runs any more.
  await eventually(
    client,
    `SELECT count(*) FILTER (WHERE parent IS NOT NULL AND key ~ '^pgagent \\d+\\.\\d+$')::int AS successors,
       count(*) FILTER (WHERE "group" LIKE '% steps' AND state IN ('PLAN', 'TAKE', 'WORK'))::int AS steps FROM task`,
    ([row]) => JSON.stringify(row) === JSON.stringify({ successors: jobs.length, steps: 0 }),
  );
  assert.deepEqual(await marks(), there);

  assert.equal((await run("import", "pgagent", "--back")).code, 0);
  const { rows: back } = await client.query(
    "SELECT count(*)::int AS n FROM pgagent.pga_job WHERE jobenabled AND jobnextrun > now()",
  );
  assert.deepEqual(back, [{ n: jobs.length }]);
});

test("each next time of the real pgAgent is a time of the rule", async (context) => {
  if (installed === null) return context.skip(why);
  const { url, client } = await startServer();
  // Its function never returns for some schedules that have no time, and fails for others.
  await client.query(`
    CREATE FUNCTION flags(size int, share float) RETURNS bool[] LANGUAGE sql VOLATILE AS 'SELECT array_agg(random() < share) FROM generate_series(1, size)';
    CREATE FUNCTION agent_next(s pgagent.pga_schedule) RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
      RETURN pgagent.pga_next_schedule(s.jscid, s.jscstart, s.jscend, s.jscminutes, s.jschours, s.jscweekdays, s.jscmonthdays, s.jscmonths);
    EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;
    SELECT setseed(0.42);
    ALTER TABLE pgagent.pga_schedule DISABLE TRIGGER USER;
    INSERT INTO pgagent.pga_job (jobjclid, jobname) SELECT 1, 'job ' || n FROM generate_series(1, 300) AS n;
    INSERT INTO pgagent.pga_jobstep (jstjobid, jstname, jstkind, jstcode, jstdbname) SELECT jobid, 'a', 's', 'SELECT 1', 'postgres' FROM pgagent.pga_job;
    INSERT INTO pgagent.pga_schedule (jscjobid, jscname, jscstart, jscminutes, jschours, jscweekdays, jscmonthdays, jscmonths)
      SELECT jobid, 's', now() - interval '1 d', CASE WHEN random() < 0.2 THEN flags(60, 0) ELSE flags(60, 0.05) END,
        CASE WHEN random() < 0.3 THEN flags(24, 0) ELSE flags(24, 0.1) END, CASE WHEN random() < 0.6 THEN flags(7, 0) ELSE flags(7, 0.3) END,
        CASE WHEN random() < 0.5 THEN flags(32, 0) WHEN random() < 0.3 THEN flags(31, 0) || true ELSE flags(31, 0.15) || (random() < 0.2) END,
        CASE WHEN random() < 0.7 THEN flags(12, 0) ELSE flags(12, 0.3) END
      FROM pgagent.pga_job`);
  const pgTask = new PgTask();
  await pgTask.start({ url, "pg_task.sleep": 50 });
  const { stdout } = await commandsOn({ url }).run("import", "pgagent", "--apply");
  const lines = linesOf(stdout);
  assert.equal(lines.length, 300);
  const refused = lines.filter((line) => line.includes("\tnot mapped\t"));
  // Only days that no month has, such as 30 February, are refused.
  assert.ok(
    refused.every((line) => line.includes("never comes")),
    refused.join("\n"),
  );
  const { rows } = await client.query<Record<string, number>>(`
    SELECT count(*)::int AS all, count(*) FILTER (WHERE agent IS NULL)::int AS none, count(*) FILTER (WHERE agent = mine)::int AS same,
      count(*) FILTER (WHERE NOT fits)::int AS outside, count(*) FILTER (WHERE agent < mine)::int AS earlier
    FROM (
      SELECT a.agent, task_next(t.rule, t.zone, date_trunc('minute', now() + interval '1 minute') - interval '1 us') AS mine,
        task_next(t.rule, t.zone, a.agent - interval '1 us') = a.agent AS fits
      FROM pgagent.pga_schedule AS s JOIN task AS t ON t.key = 'pgagent ' || s.jscjobid || '.' || s.jscid CROSS JOIN LATERAL (SELECT agent_next(s) AS agent OFFSET 0) AS a
    ) AS compared`);
  const [{ all = 0, none = 0, same = 0, outside, earlier } = {}] = rows;
  assert.deepEqual({ outside, earlier }, { outside: 0, earlier: 0 });
  assert.ok(all > 250 && none < 60 && same > 100, JSON.stringify(rows));
});

import assert from "node:assert/strict";
import { after, beforeEach, describe } from "node:test";
import { createDatabase, onServer } from "../../../support/database.js";
import { cli, cliOnTerminal, commandsOn, failsWith, linesOf } from "../../../support/cli.js";
import { test } from "../../../support/limitedTest.js";
import { cronTables } from "../../../support/schedulerTables.js";
import { Tasks } from "../../../support/tasks.js";

const database = await createDatabase();
const empty = await createDatabase("empty");
const client = await database.connect();
const tasks = await Tasks.create(client);
const { run, env } = commandsOn(database);
const { database: db, user } = database.target;
const alice = `alice_${db}`;
await client.query(`CREATE ROLE ${alice} LOGIN`);
after(() => onServer((server) => server.query(`DROP OWNED BY ${alice}; DROP ROLE ${alice}`)));
await client.query(cronTables);

const jobs = (...lines: string[]): Promise<unknown> =>
  client.query(
    `TRUNCATE cron.job; INSERT INTO cron.job (jobid, schedule, jobname, command, username, database, nodename, active) VALUES ${lines.join(", ")}`,
  );

/** A job of this user in this database, unless the text after it says something else. */
const job = (
  id: number,
  schedule: string,
  { owner = user, data = db, host = "localhost", active = true } = {},
): string => `(${id}, '${schedule}', 'job ${id}', 'SELECT ${id}', '${owner}', '${data}', '${host}', ${active})`;

const lines = async (...options: string[]): Promise<string[]> =>
  linesOf((await run("import", "pg_cron", ...options)).stdout);

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

describe("pg-task import pg_cron", () => {
  test("says of each job whether it is the same, what differs, or why it is not taken over", async () => {
    await jobs(
      job(1, "0 3 * * *"),
      job(2, "30 seconds"),
      job(3, "0 0 3 * * *"),
      job(4, "@reboot"),
      job(5, "0 0 31 2 *"),
      job(6, "0 3 * * *", { data: "elsewhere" }),
      job(7, "0 3 * * *", { owner: alice }),
      job(8, "0 3 * * *", { host: "h.example.com" }),
      job(9, "0 3 * * *", { active: false }),
    );
    const here = `added in public.task of ${db}`;
    assert.deepEqual(await lines(), [
      `pg_cron 1\tsame\tjob 1\t${here}`,
      `pg_cron 2\tsame\tjob 2\t${here}`,
      `pg_cron 3\tdiffers\tjob 3\tpg_cron reads "0 0 3 * * *" as "0 0 3 * *"; ${here}`,
      "pg_cron 4\tnot mapped\tjob 4\t@reboot",
      `pg_cron 5\tnot mapped\tjob 5\t"public"."task" rejects the task: rule "0 0 31 2 *" never comes (SQLSTATE 22023)`,
      "pg_cron 6\tnot mapped\tjob 6\tno entry for the database elsewhere",
      `pg_cron 7\tnot mapped\tjob 7\towner ${alice}: needs users; or an entry with this user; or --any-owner, to let it run as ${user}`,
      "pg_cron 8\tnot mapped\tjob 8\tit runs on the host h.example.com",
      `pg_cron 9\tsame\tjob 9\t${here}`,
    ]);
    assert.match(
      (await lines("--any-owner"))[6] ?? "",
      new RegExp(`^pg_cron 7\tdiffers\tjob 7\tran as ${alice}, and runs as ${user}; ${here}$`),
    );
    assert.deepEqual(await tasks.rows("SELECT FROM task"), []);
    const { shown } = await cliOnTerminal(["import", "pg_cron"], { env: { ...env, NO_COLOR: "1" } });
    assert.match(shown, /^pg_cron 1 \(job 1\): same: added in public\.task of /);
    assert.match(shown, /\npg-task: 3 the same, 1 differ, 5 not mapped; nothing was changed, --apply moves them\n$/);
    const json = JSON.parse((await run("import", "pg_cron", "--json")).stdout);
    assert.deepEqual(json.jobs[2], {
      key: "pg_cron 3",
      name: "job 3",
      mapping: "differs",
      notes: ['pg_cron reads "0 0 3 * * *" as "0 0 3 * *"'],
      table: "public.task",
      database: db,
      role: null,
      outcome: "added",
      changes: [],
    });
  });

  test("does not switch jobs off while no pg-task runs that would run them", async () => {
    await jobs(job(1, "0 3 * * *"));
    await failsWith(
      run("import", "pg_cron", "--apply"),
      2,
      /no pg-task serves "public"."task", and the jobs would run nowhere/,
    );
    assert.deepEqual(await tasks.rows("SELECT active FROM cron.job"), [{ active: true }]);
    assert.deepEqual(await tasks.rows("SELECT FROM task"), []);
    // Those that do not run there need none.
    await jobs(job(1, "0 3 * * *", { active: false }));
    await lines("--apply");
    assert.deepEqual(await tasks.rows("SELECT key, plan = 'infinity' AS paused, zone FROM task"), [
      { key: "pg_cron 1", paused: true, zone: "GMT" },
    ]);
  });

  test("reads the zone of pg_cron, and the tables in another database", async () => {
    await jobs(job(1, "0 3 * * *", { active: false }));
    await client.query(`ALTER DATABASE ${db} SET cron.timezone = 'Europe/Berlin'`);
    const other = { DATABASE_URL: empty.url };
    const elsewhere = await cli(["import", "pg_cron", "--from", database.url], { env: other });
    assert.match(elsewhere.stdout, new RegExp(`not mapped\tjob 1\tno entry for the database ${db}`));
    await cli(["import", "pg_cron", "--from", database.url, "--apply"], { env });
    assert.equal(await tasks.value("SELECT zone FROM task"), "Europe/Berlin");
    await client.query(`ALTER DATABASE ${db} RESET cron.timezone`);
  });

  test("escapes what would change how other text is shown", async () => {
    await jobs(
      `(1, '0 3 * * * a\u202eb', 'a\u202eb', 'SELECT 1', '${user}', '${db}', 'localhost', true)`,
      `(2, '@reboot', 'a\u202ec', 'SELECT 1', '${user}', 'a\u202eb', 'localhost', true)`,
    );
    for (const options of [[], ["--json"]]) {
      const { shown } = await cliOnTerminal(["import", "pg_cron", ...options], { env });
      assert.ok(shown.includes("pg_cron 2") && !shown.includes("\u202e"), JSON.stringify(shown));
    }
  });

  test("says what is missing", async () => {
    await failsWith(
      run("import", "pg_cron", "--from", empty.url),
      2,
      /no table cron\.job in database .*: give the database of pg_cron with --from/,
    );
    await failsWith(run("import", "pg_cron", "--from", "nonsense"), 2, /--from: expected a URL/);
    await failsWith(run("import", "pg_corn"), 2, /pg_corn/);
    const asAlice = `postgresql://${alice}@${database.target.host}:${database.target.port}/${db}`;
    await client.query("REVOKE USAGE ON SCHEMA cron FROM PUBLIC");
    await failsWith(
      run("import", "pg_cron", "--from", asAlice),
      4,
      new RegExp(
        `${alice} may not read cron\\.job: --from with a user that sees all jobs, such as a superuser; or GRANT USAGE ON SCHEMA cron TO ${alice}; GRANT SELECT ON cron\\.job TO ${alice}`,
      ),
    );
    await client.query("GRANT USAGE ON SCHEMA cron TO PUBLIC");
    await jobs(job(1, "0 3 * * *", { owner: alice }), job(2, "0 3 * * *"));
    const { stdout, stderr } = await run("import", "pg_cron", "--from", asAlice);
    assert.match(stderr, new RegExp(`pg_cron shows ${alice} only its own jobs; --from with a superuser shows all`));
    assert.equal(linesOf(stdout).length, 1);
  });
});

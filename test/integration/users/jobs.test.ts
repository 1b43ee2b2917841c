import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { taskTable } from "../../../src/manager/schema/taskTable.js";
import { sqlState } from "../../../src/shared/postgres/client.js";
import { readErrorGroups } from "../../../src/tasks/queries/history.js";
import { cli } from "../../support/cli.js";
import { configFolder } from "../../support/configFile.js";
import { projectText } from "../../support/project.js";
import { cronTables } from "../../support/schedulerTables.js";
import { only, waitForRow } from "../../support/tasks.js";
import { opened, password, UsersServer } from "../../support/users.js";

const limit = { timeout: 120_000 };
const users = await UsersServer.start("superuser");
const { admin, tasks, alice, bob, config } = users;
const folder = { cwd: await configFolder(config) };

const lines = async (...args: readonly string[]): Promise<string[]> => {
  const { code, stdout, stderr } = await cli(args, folder);
  assert.equal(code, 0, stderr);
  return stdout.split("\n").slice(0, -1);
};

const rows = async (key: string): Promise<object[]> =>
  (
    await admin.query(
      `SELECT role::text AS role, rule, repeat <> '0' AS repeats, plan = 'infinity' AS paused, data FROM task WHERE key = $1 AND state = 'PLAN'`,
      [key],
    )
  ).rows;

it("retry and run-now mind only the keys of the task's own role", limit, async () => {
  const ended = await users.run(alice, "SELECT current_user", { key: "taken", header: false });
  const his = await users.insert(bob, "SELECT 'his'", { key: "taken", plan: "infinity" });
  const refused = await cli(["run-now", ended.id], folder);
  assert.ok(!refused.stdout.includes(his), refused.stdout);
  assert.match((await lines("retry", ended.id)).join(), /PLAN|again|retried/);
  assert.equal((await users.ended(ended.id)).output, "alice");
  const hers = await users.insert(alice, "SELECT 2", { key: "taken", plan: "infinity" });
  const taken = await cli(["retry", ended.id], folder);
  assert.match(taken.stdout, new RegExp(`run-now ${hers} runs the waiting task`));
  await assert.rejects(tasks.query(`SELECT task_retry(${ended.id})`), (error) => sqlState(error) === "55000");
  await lines("run-now", his);
  assert.equal((await users.ended(his)).output, "his");
});

it("a key of several roles names no task until --role says whose", limit, async () => {
  const key = "shared";
  const rule = "0 3 1 1 *";
  const [hers, his] = [
    await users.insert(alice, "SELECT 1", { key, rule }),
    await users.insert(bob, "SELECT 2", { key, rule }),
  ];
  const which = /tasks of several roles have the key "shared": alice, bob; say which with --role/;
  const commands = ["pause", "resume", "why", "show", "run-now", "stop", "delete"];
  for (const command of commands) {
    const { code, stderr, stdout } = await cli([command, "--key", key], folder);
    assert.equal(code, 2, command + stdout);
    assert.match(stderr, which);
    assert.equal((await cli([command, "--role", "bob"], folder)).code, 2, command);
  }
  const states = async (): Promise<object[]> =>
    (
      await admin.query(
        "SELECT role::text, state::text, plan = 'infinity' AS paused FROM task WHERE key = $1 ORDER BY role",
        [key],
      )
    ).rows;
  const planned = [
    { role: "alice", state: "PLAN", paused: false },
    { role: "bob", state: "PLAN", paused: false },
  ];
  assert.deepEqual(await states(), planned);
  const ofAlice = ["--key", key, "--role", "alice"];
  assert.deepEqual(await lines("pause", ...ofAlice), [`${hers}\tchanged\tpaused`]);
  assert.deepEqual(await states(), [{ ...planned[0], paused: true }, planned[1]]);
  await lines("resume", ...ofAlice);
  assert.deepEqual(await states(), planned);
  assert.ok((await lines("show", ...ofAlice)).includes(`id\t${hers}`));
  assert.match((await lines("why", ...ofAlice)).join(), /^not-due\tit is planned for/);
  for (const id of [hers, his])
    await admin.query("UPDATE task SET state = 'FAIL', rule = NULL, zone = NULL WHERE id = $1", [id]);
  assert.match((await cli(["retry", "--key", key], folder)).stderr, which);
  await lines("retry", ...ofAlice);
  assert.equal((await users.ended(hers)).state, "DONE");
  const waiting = await users.insert(alice, "SELECT 3", { key, rule });
  // Only hers waits now, so that nothing is ambiguous.
  assert.deepEqual(await lines("stop", "--key", key), [
    `${waiting}\tchanged\tstopped before it ran; its schedule has ended`,
  ]);
  const { code, stderr } = await cli(["run-now", "--key", key, "--role", "bob"], folder);
  assert.equal(code, 1);
  assert.match(stderr, new RegExp(`the newest task with this key, ${his}, is FAIL`));
  await lines("delete", ...ofAlice, "--yes");
  assert.deepEqual(await states(), [{ role: "bob", state: "FAIL", paused: false }]);
});

it("lists say whose schedules and errors these are", limit, async () => {
  const key = "owned";
  for (const user of [alice, bob]) await users.insert(user, "SELECT 1", { key, rule: "0 3 1 1 *" });
  const owners = async (...options: readonly string[]): Promise<string[]> =>
    (await lines("list", "--schedules", "--key", key, ...options))
      .map((line) => line.split("\t").at(-1) ?? "")
      .toSorted();
  assert.deepEqual(await owners(), ["alice", "bob"]);
  assert.deepEqual(await owners("--role", "bob"), ["bob"]);
  const { rows: seen } = await alice.query("SELECT role FROM task_schedules WHERE key = $1", [key]);
  assert.deepEqual(seen, [{ role: "alice" }]);
  await lines("pause", "--key", key, "--role", "alice");
  assert.match((await cli(["doctor"], folder)).stdout, /paused: 1 schedule: owned \(schedule \d+ of alice\)/);
  for (const user of [alice, bob, bob]) await users.run(user, "SELECT 'wrong'::int");
  const { errors } = await readErrorGroups(tasks, taskTable("public", "task"), 100, () => false);
  const wrong = errors.filter(({ error }) => error.includes('"wrong"'));
  assert.deepEqual(
    wrong.map(({ role, count }) => [role, count]),
    [
      ["bob", 2],
      ["alice", 1],
    ],
  );
});

it("doctor finds nothing wrong with the keys", limit, async () => {
  assert.match((await cli(["doctor"], folder)).stdout, /^ok\t[^\t]*\tfeatures\tall on/m);
});

it(
  "doctor and status take a role that only looks or adds for no pg-task, and say which rows it sees",
  limit,
  async () => {
    const { server } = users;
    const id = await users.insert(bob, "SELECT 1", { plan: "infinity" });
    const [section = ""] = /^## Roles that only look[^]*?(?=^## )/m.exec(projectText("docs/security.md")) ?? [];
    const [, grants = ""] = /```sql\n([^]*?)```/.exec(section) ?? [];
    const [, policy = ""] = /`(CREATE POLICY [^`]+)`/.exec(section) ?? [];
    await admin.query(`CREATE ROLE reader LOGIN PASSWORD '${password}'; ${grants}`);
    const look = async (user: string, command: string): Promise<string> => {
      const env = { DATABASE_URL: server.urlOf(user, password, "shop") };
      const { code, stdout, stderr } = await cli([command], { env });
      assert.equal(code, 0, stdout + stderr);
      assert.doesNotMatch(stdout, /terminate_backend|GRANT tasks|"tasks" TO|OWNER TO|BYPASSRLS|^fail/m);
      return stdout;
    };
    const list = async (): Promise<string> =>
      (await cli(["show", id], { env: { DATABASE_URL: server.urlOf("reader", password, "shop") } })).stdout;
    for (const user of ["alice", "reader"]) {
      const hidden = `hides rows from ${user}; to show it all: CREATE POLICY look ON "public"."task" FOR SELECT TO ${user} USING (true)`;
      assert.ok((await look(user, "doctor")).includes(`row security\t${hidden}`));
      assert.ok((await look(user, "status")).includes(`row-level security ${hidden}`));
    }
    assert.doesNotMatch(await list(), /SELECT 1/);
    await tasks.query(policy);
    assert.match(await list(), /SELECT 1/);
    await tasks.query("DROP POLICY look ON task; DELETE FROM task WHERE id = $1".replace("$1", id));
  },
);

it("nobody is told to list a superuser, or can list a role that does not exist", limit, async () => {
  const hint = /Tasks cannot run as a superuser\. Name a role of public\.task_role in the column role/;
  await assert.rejects(admin.query("INSERT INTO task (input) VALUES ('SELECT 1')"), (error) =>
    hint.test(String(Reflect.get(Object(error), "hint")).replaceAll('"', "")),
  );
  await assert.rejects(
    tasks.query("INSERT INTO task_role VALUES ('nobodyx', 'task_nobodyx')"),
    (error) => sqlState(error) === "42704",
  );
});

it("a job that is running is paused with the grants of the documents", limit, async () => {
  const grants = [...projectText("docs/security.md").matchAll(/GRANT [^;`]* TO (?:producer|scheduler);/g)];
  const documented = grants.map(([grant]) => grant.replace(/TO \w+;$/, "TO carol;")).join("");
  const [own = ""] = /GRANT USAGE ON SCHEMA public TO alice[^]*?(?=^```$)/m.exec(projectText("docs/users.md")) ?? [];
  await admin.query(`CREATE ROLE carol LOGIN PASSWORD '${password}'`);
  await tasks.query("INSERT INTO task_role VALUES ('carol', 'task_carol')");
  await admin.query(documented + own.replaceAll("alice, bob", "carol"));
  const carol = await opened(users.server, "carol", "shop");
  await admin.query("SELECT pg_advisory_lock(1)");
  for (const [key, schedule, due] of [
    ["each second", "1 second", true],
    ["each year", "0 3 1 1 *", true],
    ["asks", "SELECT now() + interval '1 day'", false],
  ] as const) {
    await carol.query("SELECT task_schedule($1, $2, 'SELECT pg_advisory_lock_shared(1)')", [key, schedule]);
    await waitForRow(carol, "SELECT FROM task WHERE key = $1 AND wait IS NULL AND plan <> 'infinity'", [key]);
    await carol.query("SELECT task_run($1)", [key]);
    await waitForRow(carol, "SELECT FROM task WHERE key = $1 AND state = 'WORK'", [key]);
    await carol.query("SELECT task_pause($1)", [key]);
    const { rows: paused } = await admin.query(
      "SELECT role::text, plan::text, due <= now() + interval '1 year' AS due, wait FROM task WHERE key = $1 AND state = 'PLAN'",
      [key],
    );
    assert.deepEqual(paused, [{ role: "carol", plan: "infinity", due: true, wait: due ? null : -1 }]);
  }
  await admin.query("SELECT pg_advisory_unlock(1)");
  await admin.query("DELETE FROM task WHERE role = 'carol'");
});

it("a role that may not pause a group is told which GRANT it lacks", limit, async () => {
  const env = { DATABASE_URL: users.server.urlOf("bob", password, "shop") };
  const { stderr } = await cli(["pause", "--group", "his"], { env });
  const [grant = ""] = /GRANT INSERT, DELETE ON "public"\."task_pause" TO "bob"$/m.exec(stderr) ?? [stderr];
  await tasks.query(grant);
  for (const command of ["pause", "resume"]) assert.equal((await cli([command, "--group", "his"], { env })).code, 0);
  await tasks.query("REVOKE INSERT, DELETE ON task_pause FROM bob");
});

it("a taken key names the task of the same role", limit, async () => {
  const key = "its holder";
  const his = await users.insert(bob, "SELECT 1", { key, plan: "infinity" });
  const hers = await users.insert(alice, "SELECT 1", { key, plan: "infinity" });
  for (const [role, id] of [
    ["alice", hers],
    ["bob", his],
  ]) {
    const { code, stderr } = await cli(["add", "SELECT 1", "--key", key, "--role", role ?? ""], folder);
    assert.notEqual(code, 0);
    assert.match(
      stderr,
      new RegExp(`task ${id} waits .* WHERE key = 'its holder' AND role = '${role}' AND ready IS NOT NULL`),
    );
    const skip = ["--if-key-taken", "skip"];
    const skipped = await cli(["add", "SELECT 1", "--key", key, "--role", role ?? "", ...skip], folder);
    assert.match(skipped.stderr, new RegExp(`nothing was added: task ${id} waits`));
  }
});

it("import lets each job run as its owner, if that is a role of the table, and brings it back", limit, async () => {
  await admin.query(`${cronTables.replaceAll("CURRENT_USER", "'nobody'")};
    CREATE ROLE eve; GRANT UPDATE ON cron.job TO tasks; ALTER TABLE cron.job OWNER TO tasks; ALTER TABLE cron.job_run_details OWNER TO tasks;
    INSERT INTO cron.job (jobid, schedule, jobname, command, username, database, active) VALUES
      (1, '0 3 1 1 *', 'hers', 'SELECT current_user', 'alice', 'shop', true), (2, '1 second', 'his', 'SELECT current_user', 'bob', 'shop', true),
      (3, '0 3 1 1 *', 'own', 'SELECT current_user', 'tasks', 'shop', true), (4, '0 3 1 1 *', 'hidden', 'SELECT 4', 'eve', 'shop', true),
      (5, '0 3 1 1 *', 'off', 'SELECT 5', 'bob', 'shop', false), (6, '0 3 1 1 *', 'super', 'SELECT 6', 'postgres', 'shop', false);
    INSERT INTO cron.job_run_details (jobid, job_pid, command, status, return_message, start_time, end_time)
      VALUES (1, 7, 'SELECT current_user', 'succeeded', 'a run there', '2026-01-01', '2026-01-01')`);
  // What an author puts in the way changes nothing.
  const forged = await users.insert(alice, "SELECT 1", {
    key: "pg_cron 2",
    plan: "infinity",
    data: "pg-task import: to be switched off there",
  });
  const unlisted =
    /owner eve is no role of the table: INSERT INTO "public"."task_role" \(role, login\) VALUES \('eve', 'task_eve'\)/;
  const shown = await lines("import", "pg_cron");
  assert.deepEqual(
    shown.map((line) => line.split("\t").slice(0, 2).join(" ")),
    [
      "pg_cron 1 same",
      "pg_cron 2 same",
      "pg_cron 3 same",
      "pg_cron 4 not mapped",
      "pg_cron 5 same",
      "pg_cron 6 not mapped",
    ],
  );
  assert.match(shown[5] ?? "", /tasks cannot run as its owner postgres, a superuser: give the job another/);
  assert.match(shown[3] ?? "", unlisted);
  assert.equal((await admin.query("SELECT FROM task WHERE key LIKE 'pg_cron%' AND key <> 'pg_cron 2'")).rowCount, 0);
  for (let time = 0; time < 2; time += 1) await lines("import", "pg_cron", "--apply");
  const job = { rule: "0 3 1 1 *", repeats: false, paused: false, data: null };
  assert.deepEqual(await rows("pg_cron 1"), [{ ...job, role: "alice" }]);
  assert.deepEqual(await rows("pg_cron 3"), [{ ...job, role: "tasks" }]);
  assert.deepEqual(await rows("pg_cron 4"), []);
  assert.deepEqual(await rows("pg_cron 5"), [{ ...job, role: "bob", paused: true }]);
  const copied = "SELECT role::text AS role, output FROM task WHERE key = 'pg_cron 1' AND start IS NOT NULL";
  assert.deepEqual((await admin.query(copied)).rows, [{ role: "alice", output: "a run there" }]);
  await waitForRow(
    admin,
    "SELECT FROM task WHERE key = 'pg_cron 2' AND role = 'bob' AND state = 'DONE' AND output LIKE '%bob'",
    [],
  );
  const active = async (): Promise<unknown> =>
    (await admin.query("SELECT jobid::int FROM cron.job WHERE active ORDER BY jobid")).rows.map(({ jobid }) => jobid);
  assert.deepEqual(await active(), [4]);
  const back = await lines("import", "pg_cron", "--back");
  assert.deepEqual(
    back.map((line) => line.split("\t").slice(0, 2).join(" ")),
    ["pg_cron 1 runs there", "pg_cron 2 runs there", "pg_cron 3 runs there", "pg_cron 5 paused there"],
  );
  assert.deepEqual(await active(), [1, 2, 3, 4]);
  assert.equal(
    (await admin.query("SELECT FROM task WHERE key LIKE 'pg_cron%' AND state = 'PLAN' AND id <> $1", [forged]))
      .rowCount,
    0,
  );
  assert.deepEqual(await rows("pg_cron 2"), [
    { role: "alice", rule: null, repeats: false, paused: true, data: "pg-task import: to be switched off there" },
  ]);
  await lines("import", "pg_cron", "--any-owner", "--apply");
  assert.deepEqual(await rows("pg_cron 4"), [{ ...job, role: "tasks" }]);
  // Once its owner is listed, the job is given to it, and not doubled.
  await tasks.query("INSERT INTO task_role VALUES ('eve', 'task_eve')");
  await lines("import", "pg_cron", "--apply");
  assert.deepEqual(await rows("pg_cron 4"), [{ ...job, role: "eve" }]);
  await tasks.query("DELETE FROM task_role WHERE role = 'eve'");
  await admin.query("DROP SCHEMA cron CASCADE; DELETE FROM task WHERE key LIKE 'pg_cron%'");
});

/** How the view shows a run of this role. */
const message = (name: string): object => ({ return_message: name, username: name });

it(
  "jobs of the functions and views of pg_cron run as who has scheduled them, and nobody else changes them",
  limit,
  async () => {
    const created = await cli(["facade", "cron"], folder).then(async (result) =>
      result.code === 0 ? result : await cli(["facade", "cron"], folder),
    );
    assert.equal(created.code, 0, created.stderr);
    await tasks.query(
      "GRANT USAGE ON SCHEMA cron TO alice, bob; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cron TO alice, bob",
    );
    const schedule = "SELECT cron.schedule('each second', '1 second', 'SELECT current_user') AS id";
    const [hers, his] = [
      only((await alice.query<{ id: string }>(schedule)).rows).id,
      only((await bob.query<{ id: string }>(schedule)).rows).id,
    ];
    const run =
      "SELECT return_message, username FROM cron.job_run_details WHERE jobid = $1 AND status = 'succeeded' LIMIT 1";
    assert.deepEqual(await waitForRow(alice, run, [hers]), message("alice"));
    assert.deepEqual(await waitForRow(bob, run, [his]), message("bob"));
    assert.deepEqual((await alice.query("SELECT jobid, username FROM cron.job")).rows, [
      { jobid: hers, username: "alice" },
    ]);
    assert.equal((await alice.query(run, [his])).rowCount, 0);
    await assert.rejects(
      alice.query("SELECT cron.unschedule($1::bigint)", [his]),
      (error) => sqlState(error) === "P0002",
    );
    for (const sql of [
      "SELECT cron.unschedule($1::bigint)",
      "SELECT cron.alter_job($1::bigint, schedule => '0 3 * * *')",
      "SELECT cron.alter_job($1::bigint, active => false)",
      "UPDATE cron.job SET schedule = '0 3 * * *' WHERE jobid = $1",
      "DELETE FROM cron.job WHERE jobid = $1",
    ])
      await assert.rejects(
        tasks.query(sql, [his]),
        (error) => sqlState(error) === "42501" && /belongs to role "bob"/.test(String(error)),
        sql,
      );
    assert.equal((await admin.query("SELECT FROM task WHERE key LIKE 'cron %' AND role = 'tasks'")).rowCount, 0);
    for (const client of [alice, bob]) await client.query("SELECT cron.unschedule('each second')");
  },
);

it("apply changes and ends the jobs of the roles that its file names, and no others", limit, async () => {
  const apply = async (jobs: object, ...options: readonly string[]): Promise<string[]> => {
    await writeFile(join(folder.cwd, "jobs.json"), JSON.stringify({ prefix: "shop ", jobs }));
    return await lines("apply", "jobs.json", ...options);
  };
  const job = { rule: "0 3 1 1 *", input: "SELECT 1" };
  await users.insert(bob, "SELECT 1", { key: "shop bob's", rule: "0 3 1 1 *" });
  assert.deepEqual(await apply({ a: { ...job, role: "alice" }, b: { ...job, role: "alice" }, c: job }), [
    "shop a\tadded\t",
    "shop b\tadded\t",
    "shop c\tadded\t",
  ]);
  assert.deepEqual(await rows("shop a"), [
    { role: "alice", rule: job.rule, repeats: false, paused: false, data: null },
  ]);
  assert.deepEqual(await apply({ a: { ...job, role: "alice", rule: "0 4 1 1 *" } }, "--prune", "--yes"), [
    "shop a\tchanged\trule: 0 3 1 1 * → 0 4 1 1 *",
    "shop b\tended\t",
    "shop c\tended\t",
  ]);
  assert.equal((await rows("shop bob's")).length, 1);
  await writeFile(join(folder.cwd, "jobs.json"), JSON.stringify({ jobs: { d: { ...job, role: "eve" } } }));
  const unlisted = await cli(["apply", "jobs.json"], folder);
  assert.notEqual(unlisted.code, 0);
  assert.match(unlisted.stderr + unlisted.stdout, /tasks cannot run as eve, which has no login/);
});

it("import says as which role a job runs, and asks for one that a crontab does not name", limit, async () => {
  const file = join(folder.cwd, "crontab");
  await writeFile(file, `0 3 1 1 * psql -U alice -d shop -c "SELECT 1"\n0 4 1 1 * psql -d shop -c "SELECT 2"\n`);
  const [hers = "", nobodys = "", ...more] = await lines("import", "crontab", file);
  assert.match(hers, /\tsame\t.*runs as alice; added/);
  assert.match(nobodys, /\tnot mapped\t.*it says no role: name one/);
  assert.deepEqual(more, []);
  assert.match((await lines("import", "crontab", file, "--any-owner"))[1] ?? "", /runs as tasks; added/);
});

it("a schedule that runs away ends by the statements of the documents", limit, async () => {
  const [documented = ""] =
    /^BEGIN;\nLOCK TABLE task [^]*?(?=^```$)/m.exec(projectText("docs/troubleshooting.md")) ?? [];
  await users.insert(alice, "SELECT 1", { repeat: "1 microsecond", group: "runaway" });
  await waitForRow(admin, `SELECT FROM task WHERE "group" = 'runaway' AND parent IS NOT NULL AND state = 'DONE'`, []);
  await alice.query(documented.replace("'poll'", "'runaway'"));
  const count = async (): Promise<object[]> =>
    (
      await admin.query(
        `SELECT count(*), count(*) FILTER (WHERE state = 'STOP') AS stopped FROM task WHERE "group" = 'runaway'`,
      )
    ).rows;
  await waitForRow(admin, `SELECT FROM task WHERE "group" = 'runaway' HAVING bool_and(owner IS NULL)`, []);
  const before = await count();
  assert.equal((await users.run(alice, "SELECT 1")).state, "DONE");
  assert.deepEqual(await count(), before);
});

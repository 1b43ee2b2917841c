import assert from "node:assert/strict";
import { TaskClient } from "../../../src/library/index.js";
import { readFileSync } from "node:fs";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { z } from "zod";
import type { Client } from "../../../src/shared/postgres/client.js";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { replaceConfig, configFolder } from "../../support/configFile.js";
import { doctor } from "../../support/doctor.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { PgTask } from "../../support/pgTask.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";
import { processesSchema } from "../../../src/web/api/schemas.js";
import { clusterSchema, healthSchema } from "../../../src/web/api/schemas.js";
import { token, Web, poll } from "../../support/web.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const server = await RestartableServer.started();
const admin = await connectTo(server.url);
after(() => admin.end());
const readme = readFileSync(projectPath("README.md"), "utf8");
const [ownersText = "", creatingText = ""] = [...readme.matchAll(/```json\n([^]*?)```/g)].map(([, text = ""]) => text);
const [controlPassword, shopPassword] = ["the control password", "shop's password"];
await admin.query(`SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD '${controlPassword}'`);
const rules = join(server.dataDirectory, "pg_hba.conf");
await writeFile(rules, (await readFile(rules, "utf8")).replaceAll(/trust$/gm, "scram-sha-256"));
await admin.query("SELECT pg_reload_conf()");

/** Creates a role, and a database of this name that belongs to it. */
async function createOwner(role: string, password = "first password"): Promise<void> {
  await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD '${password}'`);
  await admin.query(`CREATE DATABASE ${role} OWNER ${role}`);
}

/** URL of a database on the server. */
function urlOf(user: string, password: string, database = user): string {
  const url = new URL(server.url);
  [url.username, url.password, url.pathname] = [user, password, `/${database}`];
  return url.href;
}

const withPassword = urlOf("postgres", controlPassword);

/** Opens a connection to a database as the superuser. It is ended after the file's tests. */
async function connectAsSuperuser(database: string): Promise<Client> {
  const client = await connectTo(urlOf("postgres", controlPassword, database));
  after(() => client.end());
  return client;
}

const env = { PGPASSWORD: controlPassword, SHOP_PASSWORD: shopPassword };

const statusSchema = z.object({
  tables: z.array(z.object({ sessionsRefused: z.object({ sqlState: z.string().nullable() }).nullable() })),
});

const config = (entry: object): object => ({ url: server.url, "pg_task.json": [entry] });

/** Starts a pg-task with this configuration, in the test's process. It is stopped after the test. */
function start(content: unknown, more: Readonly<Record<string, string>> = {}): PgTask {
  const pgTask = new PgTask();
  pgTask.launch(content, { env: more });
  return pgTask;
}

/** Starts a pg-task that has its configuration in a file. Returns it, and the folder of the file. */
async function startWithFile(
  content: unknown,
): Promise<{ readonly program: PgTask; readonly folder: { cwd: string } }> {
  const program = new PgTask();
  const folder = { cwd: await configFolder(content) };
  program.launch(undefined, { env, cwd: folder.cwd });
  return { program, folder };
}

/**
 * Runs `pg-task check` on a configuration.
 *
 * @returns the exit code, the output, and the folder of the configuration file
 */
async function check(content: object): Promise<{ code: number | null; text: string; cwd: string }> {
  const cwd = await configFolder(content);
  const { code, stdout, stderr } = await cli(["check"], { cwd, env });
  return { code, text: stdout + stderr, cwd };
}

/** Runs a task on a server that requires passwords with a configuration that gives the role `shop` its table. */
async function serveShop(content: object, more: Readonly<Record<string, string>>, table: string): Promise<void> {
  const program = start(content, more);
  const ready = await program.line("ready");
  assert.deepEqual([ready["serving"], ready["waiting"]], [1, []]);
  const client = await connectTo(urlOf("shop", env.SHOP_PASSWORD));
  await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT session_user')`);
  const done = await waitForRow<{ output: string }>(client, `SELECT output FROM ${table} WHERE state = 'DONE'`, []);
  assert.equal(done.output, "shop");
  await client.end();
  await program.stop();
}

test("the README's configuration that makes role and database works on a server that requires passwords", async () => {
  const configuration = { ...JSON.parse(creatingText), url: server.url };
  const before = await check(configuration);
  assert.equal(before.code, 0, before.text);
  assert.match(before.text, /role +shop +would be created/);
  assert.doesNotMatch(before.text, /^warning/m);
  await serveShop(configuration, env, "task");
});

test("the README's configuration for the owner of the tables works with a password file", async () => {
  const file = join(await temporaryFolder(), ".pgpass");
  await writeFile(file, `127.0.0.1:${server.port}:shop:shop:${shopPassword}\n`, { mode: 0o600 });
  const owners: { url: string } = JSON.parse(ownersText);
  const url = new URL(owners.url);
  url.host = `127.0.0.1:${server.port}`;
  await serveShop({ ...owners, url: url.href }, { PGPASSFILE: file }, "shop.task");
});

test("the library does not call a wrong or missing password retryable", async () => {
  for (const [password, sqlState] of [
    ["wrong", "28P01"],
    ["", undefined],
  ] as const) {
    const tasks = new TaskClient(urlOf("postgres", password));
    await assert.rejects(tasks.wait(1), { code: "CONNECTION_REJECTED", sqlState, retryable: false });
    await tasks.end();
  }
});

test("says what to do about a missing database and a role without LOGIN", async () => {
  await admin.query("CREATE ROLE nobody NOLOGIN PASSWORD 'nobody'");
  for (const [url, remedy] of [
    [
      urlOf("postgres", controlPassword, "misspelt"),
      /\(SQLSTATE 3D000\): create the database "misspelt", or correct its name$/,
    ],
    [urlOf("nobody", "nobody", "postgres"), /\(SQLSTATE 28000\): ALTER ROLE "nobody" LOGIN$/],
  ] as const) {
    const { stderr } = await cli(["list"], { cwd: await temporaryFolder(), env: { DATABASE_URL: url } });
    assert.match(stderr.trim(), remedy);
  }
});

test("a missing password of the control connection is not to be given in an entry, that of an entry is", async () => {
  const cwd = await temporaryFolder();
  const file = join(cwd, "pg_task.json");
  await admin.query("CREATE ROLE kept LOGIN");
  await writeFile(file, JSON.stringify({ url: server.url }));
  for (const command of ["check", "list", "status", "doctor"]) {
    const { stdout, stderr } = await cli([command], { cwd, env: {} });
    // The remedy is a field of its own in the output of doctor, where the text does not repeat it.
    const given = /none was given for [^\t\n]*(?:: |\t)give one in the URL, in PGPASSWORD or in a password file/;
    assert.match(stdout + stderr, given, command);
    assert.match(stdout + stderr, /; the password of an entry does not count for the control connection; /, command);
    assert.doesNotMatch(stdout + stderr, /in the entry/, command);
  }
  const passwords = join(cwd, "passwords");
  const withFile = async () => (await cli(["list"], { cwd, env: { PGPASSFILE: passwords } })).stderr;
  assert.match(await withFile(), new RegExp(`password file \\(there is no ${passwords}\\)`));
  await writeFile(passwords, "other:*:*:*:secret\n", { mode: 0o600 });
  assert.match(await withFile(), new RegExp(`password file \\(no matching line was read from ${passwords}\\)`));
  await writeFile(passwords, "*:*:*:*:secret\n");
  assert.match(await withFile(), new RegExp(`28P01\\): the password is from ${passwords}: give the role's password`));
  // A password that is given has precedence over the file.
  const wrong = (await cli(["list"], { cwd, env: { PGPASSFILE: passwords, PGPASSWORD: "wrong" } })).stderr;
  assert.match(wrong, /28P01\): the password is from the connection's settings or PGPASSWORD, so no password file/);
  await chmod(passwords, 0o644);
  const refused = await withFile();
  assert.match(
    refused,
    new RegExp(`none was given for [^ ]*: password file ${passwords} is not used: its group or others`),
  );
  assert.doesNotMatch(refused, /no matching line/);
  // The driver does not warn in its own words, too.
  assert.doesNotMatch(refused, /WARNING/);
  const program = start({ url: server.url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token });
  const web = await Web.connect(program);
  const { tables } = await web.get(clusterSchema, "/api/tables");
  const { error, managers } = await web.get(processesSchema, "/api/processes");
  for (const reason of [error, managers[0]?.error, tables[0]?.error]) {
    assert.match(reason ?? "", /none was given for .*: give one in the URL, in PGPASSWORD or in a password file/);
  }
  await program.stop();
  await writeFile(file, JSON.stringify({ url: withPassword, "pg_task.json": [{ user: "kept", data: "postgres" }] }));
  const { stderr } = await cli(["list"], { cwd, env: {} });
  assert.match(stderr, /none was given for .*: give one in the entry or the URL, in PGPASSWORD or in a password file/);
});

test("check fails for a role that could not log in, and the entry's password is set later", async () => {
  const before = await check(config({ data: "bare", create: true }));
  assert.equal(before.code, 3, before.text);
  assert.match(
    before.text,
    /^error .*: the server asks for a password, and the role "bare" would be created without one: set "password" in its entry/,
  );
  const { program, folder } = await startWithFile(config({ data: "bare", create: true }));
  const ready = await program.line("ready");
  assert.deepEqual([ready["serving"], ready["waiting"]], [0, [`127.0.0.1:${server.port}/bare/public.task`]]);
  const { reason } = await program.line("manager unavailable, retrying");
  assert.match(String(reason), /ALTER ROLE "bare" PASSWORD '…'/);

  // With a password, the entry serves its table: the role is pg-task's own.
  const entry = { data: "bare", password: "new" };
  const fixed = await check(config(entry));
  assert.deepEqual([fixed.code, /error:/.test(fixed.text)], [0, false], fixed.text);
  assert.match(fixed.text, /role +bare +exists: with another password than the entry's, which pg-task start sets\n/);
  assert.match(
    fixed.text,
    /table +task +unknown: cannot be inspected before the role "bare" has the entry's password\n/,
  );
  await replaceConfig(folder, config(entry));
  assert.equal((await program.line("password of the role changed"))["role"], "bare");
  await program.line("serving table");
  await program.stop();
  for (const changed of ["newer", "newest"]) {
    const again = start(config({ ...entry, password: changed }), env);
    const line = await again.line("ready");
    assert.deepEqual([line["serving"], line["waiting"]], [1, []]);
    assert.equal(again.linesMatching("password of the role changed").length, 1);
    await again.stop();
    assert.ok(!JSON.stringify(again.lines).includes(changed));
  }
  const same = start(config({ ...entry, password: "newest" }), env);
  await same.line("ready");
  // Nobody has changed the entry, so this change is not undone while pg-task runs.
  await admin.query("ALTER ROLE bare PASSWORD 'changed by hand'");
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'bare'");
  await same.line("manager unavailable, retrying");
  // The manager's next attempt fails for another reason. By then, the first failure has been dealt with.
  await admin.query("ALTER ROLE bare NOLOGIN");
  await same.line("manager unavailable, retrying", 2);
  await admin.query("ALTER ROLE bare LOGIN");
  const { rows } = await admin.query("SELECT shobj_description('bare'::regrole, 'pg_authid') IS NOT NULL AS own");
  assert.deepEqual(rows, [{ own: true }]);
  assert.equal(same.linesMatching("password of the role changed").length, 0);
  await same.stop();
});

test("check fails for a role that pg_hba.conf would keep out once it exists", async () => {
  const before = await readFile(rules, "utf8");
  await writeFile(rules, `host all kept_out 127.0.0.1/32 reject\n${before}`);
  await admin.query("SELECT pg_reload_conf()");
  const entry = { data: "kept_out", create: true, password: "any" };
  const { code, text } = await check(config(entry));
  await writeFile(rules, before);
  await admin.query("SELECT pg_reload_conf()");
  assert.equal(code, 3, text);
  assert.match(text, /^error .*: the server refused the connection .*pg_hba.conf rejects connection/);
  const open = await check(config(entry));
  assert.equal(open.code, 0, open.text);
});

test("a control role that sees no passwords sets a changed one too", async () => {
  await admin.query("CREATE ROLE maker LOGIN CREATEROLE CREATEDB PASSWORD 'made'");
  await admin.query("CREATE DATABASE maker OWNER maker");
  const url = urlOf("maker", "made");
  for (const [password, changes] of [
    ["first", 0],
    ["second", 1],
    ["second", 0],
  ] as const) {
    const entry = { data: "made", create: true, password };
    const program = start({ url, "pg_task.json": [entry] });
    assert.equal((await program.line("ready"))["serving"], 1);
    assert.equal(program.linesMatching("password of the role changed").length, changes);
    await program.stop();
  }
  // Without the right to set it, check fails as start would.
  const changed = { url, "pg_task.json": [{ data: "made", create: true, password: "third" }] };
  assert.equal((await check(changed)).code, 0);
  await admin.query("ALTER ROLE maker NOCREATEROLE");
  const { code, text } = await check(changed);
  assert.equal(code, 4, text);
  assert.match(
    text,
    /^error .*: role made not allowed: it has another password than the entry's, and the control connection's user maker may not change it\n/,
  );
  const refused = start(changed);
  assert.equal((await refused.line("role or database unavailable, retrying"))["code"], "SCHEMA_NOT_ALLOWED");
  await refused.stop();
});

test("the password of a role that pg-task did not create stays, and ALTER ROLE is suggested", async () => {
  await createOwner("theirs", "theirs");
  const entry = { data: "theirs", create: true, password: "mine" };
  const { code, text, cwd } = await check(config(entry));
  assert.equal(code, 3);
  assert.match(text, /ALTER ROLE "theirs" PASSWORD '…'/);
  const { lines } = await doctor(env, cwd);
  const refused = lines.find(({ level }) => level === "fail");
  assert.equal(refused?.remedy, `give the role's password, or set it by ALTER ROLE "theirs" PASSWORD '…'`);
  assert.match(
    refused.text,
    /password authentication failed for user "theirs" \(SQLSTATE 28P01\): the password is from the connection's settings or PGPASSWORD, so no/,
  );
  const program = start(config(entry), env);
  const { reason } = await program.line("manager unavailable, retrying");
  assert.match(String(reason), /ALTER ROLE "theirs" PASSWORD '…'/);
  await admin.query("ALTER ROLE theirs PASSWORD 'mine'");
  await program.line("serving table");
  await program.stop();
});

test("commands name a missing role instead of its password", async () => {
  const content = config({ data: "nobody_yet", password: "unknown" });
  const cwd = await configFolder(content);
  const missing = /the role "nobody_yet" and the database "nobody_yet" are missing/;
  const listed = await cli(["list"], { cwd, env });
  assert.equal(listed.code, 4);
  assert.match(listed.stderr, missing);
  assert.match(listed.stderr, /are missing: create what is missing/);
  const { code, lines } = await doctor(env, cwd);
  const failed = lines.filter(({ level }) => level === "fail");
  assert.equal(code, 4);
  assert.deepEqual([failed.length, missing.test(failed[0]?.text ?? "")], [1, true]);
  // The remedy is not said twice.
  assert.match(failed[0]?.text ?? "", /are missing$/);
  assert.match(failed[0]?.remedy ?? "", /^create what is missing/);
  assert.doesNotMatch(JSON.stringify(failed), /password authentication|ALTER ROLE/);
});

test("a table whose sessions are refused is not served, and why, doctor and /ready say so", async () => {
  await createOwner("changed");
  const content = {
    ...config({ data: "changed", password: "first password" }),
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_work.restart": 1,
  };
  const { program, folder } = await startWithFile(content);
  const web = await Web.connect(program);
  await program.line("ready");
  assert.equal((await web.requestWithoutToken("/ready")).status, 200);
  await admin.query("ALTER ROLE changed PASSWORD 'second password'");
  const client = await connectAsSuperuser("changed");
  await client.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  await program.line("cannot open a session, tasks wait");
  const readyAs = (status: number) =>
    poll(
      () => web.requestWithoutToken("/ready"),
      (answer) => answer.status === status,
    );
  const ready = await readyAs(503);
  assert.deepEqual([ready.status, ready.text], [503, "not ready: the server refuses the sessions of the tables\n"]);
  const { managers } = healthSchema.parse(JSON.parse((await web.request("/health")).text));
  assert.equal(managers[0]?.manager?.state, "working");
  assert.equal(managers[0]?.manager?.sessionsRefused?.code, "CONNECTION_REJECTED");
  assert.match(managers[0]?.manager?.sessionsRefused?.reason ?? "", /28P01/);
  const open = healthSchema.parse(JSON.parse((await web.requestWithoutToken("/health")).text));
  assert.deepEqual(open.managers[0]?.manager?.sessionsRefused, { code: "CONNECTION_REJECTED", reason: null });
  assert.match((await web.requestWithoutToken("/metrics")).text, /^pg_task_manager_up\{.*\} 0$/m);

  // The commands know the new password.
  const cwd = await configFolder(config({ data: "changed", password: "second password" }));
  const diagnosis = await doctor({ ...env }, cwd);
  assert.equal(diagnosis.code, 3);
  const stalls = diagnosis.lines.find(({ name }) => name === "stalls");
  assert.equal(stalls?.level, "fail");
  assert.match(
    stalls?.text ?? "",
    /no session is free, and the server refuses new ones, .* \(SQLSTATE 28P01\): 1 of group "group"/,
  );
  const why = await cli(["why", "1"], { cwd, env });
  assert.match(why.stdout, /no session is free for it, and the server refuses new ones/);
  assert.match(why.stdout, /cannot open a session, tasks wait/);

  await replaceConfig(folder, { ...content, ...config({ data: "changed", password: "second password" }) });
  await waitForRow(client, "SELECT FROM task WHERE state = 'DONE'", []);
  await readyAs(200);
  await program.stop();
});

test("why, doctor and status say that sessions are refused also while others are busy", async () => {
  await createOwner("busy");
  const content = { ...config({ data: "busy", password: "first password" }), "pg_work.restart": 1 };
  const program = start(content, env);
  await program.line("ready");
  const client = await connectAsSuperuser("busy");
  await client.query("SELECT pg_advisory_lock(1)");
  const insert = (input: string, group: string) =>
    client.query('INSERT INTO task (input, "group") VALUES ($1, $2)', [input, group]);
  const ofRun = "wait_event_type = 'Lock' AND application_name LIKE 'pg\\_task %'";
  for (const group of ["one", "two"]) await insert("SELECT pg_advisory_lock_shared(1)", group);
  await waitForRow(client, `SELECT FROM pg_stat_activity WHERE ${ofRun} HAVING count(*) = 2`, []);

  const entry = { data: "busy", user: "postgres", password: controlPassword };
  const cwd = await configFolder(config(entry));
  const refusal = async () => {
    const { stdout } = await cli(["status", "--json"], { cwd, env });
    return statusSchema.parse(JSON.parse(stdout)).tables[0]?.sessionsRefused;
  };
  const untilRefused = (sqlState: string | null) => poll(refusal, (found) => (found?.sqlState ?? null) === sqlState);
  assert.equal(await refusal(), null);
  await admin.query("ALTER ROLE busy PASSWORD 'second password'");
  await insert("SELECT 1", "three");
  await program.line("cannot open a session, tasks wait");
  await untilRefused("28P01");
  const reason = /the server refuses new (?:ones|sessions): it does not accept the role's password \(SQLSTATE 28P01\)/;
  const why = await cli(["why", "3"], { cwd, env });
  assert.match(why.stdout, /^no-session\tnothing in the table blocks it, but no session is free for it, and /);
  assert.match(why.stdout, reason);
  assert.match(why.stdout, /\("cannot open a session, tasks wait"\); give pg-task the role's new password\n$/);
  const status = await cli(["status"], { cwd, env });
  assert.match(
    status.stdout,
    /\n {2}sessions {3}2, 2 running\n {2}refused {4}the server refuses new sessions, tasks wait: it does not accept/,
  );
  const diagnosis = await doctor(env, cwd);
  const stalls = diagnosis.lines.find(({ name }) => name === "stalls");
  assert.equal(diagnosis.code, 3);
  assert.equal(stalls?.level, "fail");
  assert.match(
    stalls.text,
    /no session is free, and the server refuses new ones, .* \(SQLSTATE 28P01\): 3 of group "three"$/,
  );
  assert.match(stalls.remedy, /give pg-task the role's new password$/);

  // The manager's own connection and the two sessions are at the limit.
  await admin.query("ALTER ROLE busy PASSWORD 'first password' CONNECTION LIMIT 3");
  await untilRefused("53300");
  assert.match((await cli(["why", "3"], { cwd, env })).stdout, /there are too many connections \(SQLSTATE 53300\)/);
  await admin.query("ALTER ROLE busy CONNECTION LIMIT -1");
  await waitForRow(client, "SELECT FROM task WHERE id = 3 AND state = 'DONE'", []);
  await client.query("SELECT pg_advisory_unlock(1)");
  // A task that waits only for its group is not said to wait for a session.
  await insert("SELECT pg_sleep(600)", "four");
  await insert("SELECT 1", "four");
  await untilRefused(null);
  await client.query("DELETE FROM task");
  await program.stop();
});

test("check and doctor agree about the changed password of a role that pg-task has created", async () => {
  const content = config({ data: "agreed", password: "first password", create: true });
  const program = start(content, env);
  await program.line("ready");
  await program.stop();
  await admin.query("ALTER ROLE agreed PASSWORD 'second password'");
  const { text, cwd, code } = await check(content);
  assert.equal(code, 0, text);
  assert.match(text, /role +agreed +exists: with another password than the entry's, which pg-task start sets\n/);
  const { lines } = await doctor({ ...env }, cwd);
  const failed = lines.find(({ level }) => level === "fail");
  assert.equal(failed?.text, 'the role "agreed" has another password than its entry');
  assert.match(failed.remedy, /^pg-task created the role, and sets the entry's password when it starts /);
});

test("a role that another session changes at the same time gets its entry's password all the same", async () => {
  const content = config({ data: "raced", password: "first password", create: true });
  const first = start(content, env);
  await first.line("ready");
  await first.stop();
  await admin.query("BEGIN; ALTER ROLE raced CONNECTION LIMIT 50");
  const program = start(config({ data: "raced", password: "second password", create: true }), env);
  const other = await connectTo(withPassword);
  await waitForRow(
    other,
    "SELECT FROM pg_stat_activity WHERE query LIKE 'ALTER ROLE %' AND wait_event_type = 'Lock'",
    [],
  );
  await admin.query("COMMIT");
  await program.line("password of the role changed");
  await program.line("ready");
  assert.deepEqual(program.linesMatching(/unavailable/), []);
  await other.end();
  await program.stop();
});

test("a changed password shows at a reload and in deep sleep, although no task is due", async () => {
  await createOwner("idle");
  const content = {
    ...config({ data: "idle", password: "first password", reset: "1 sec", sleep: 10 }),
    "pg_task.idle": 1,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_work.restart": 1,
    "pg_conf.restart": 1,
  };
  const { program, folder } = await startWithFile(content);
  const web = await Web.connect(program);
  await program.line("ready");
  const untilReady = (status: number) =>
    poll(
      () => web.requestWithoutToken("/ready"),
      (answer) => answer.status === status,
    );
  const setPassword = (password: string) => admin.query(`ALTER ROLE idle PASSWORD '${password}'`);
  await untilReady(200);

  await setPassword("second password");
  const { reason } = await program.line("the server refuses new sessions");
  assert.match(String(reason), /28P01.*ALTER ROLE "idle" PASSWORD/);
  await untilReady(503);
  assert.match((await web.requestWithoutToken("/ready")).text, /the server refuses the sessions of the tables/);
  await setPassword("first password");
  await program.line("the server accepts new sessions again");
  await untilReady(200);

  // While the manager is awake, a reload finds it out.
  await replaceConfig(folder, { ...content, "pg_task.idle": 1_000_000 });
  await program.line("settings changed");
  await setPassword("second password");
  await program.reload();
  await program.line("changed parameters not applied yet, retrying");
  await untilReady(503);
  await setPassword("first password");
  await untilReady(200);
  assert.equal(program.linesMatching("the server refuses new sessions").length, 1);
  await program.stop();
});

/** Starts a pg-task whose table is in a database of its own, and a task in it that runs until a lock is released. */
async function startRunning(role: string) {
  await createOwner(role);
  const content = (password: string): object => ({
    ...config({ data: role, password, sleep: 100 }),
    // The test would not end if the grace period was waited for.
    "pg_conf.grace": 2_000_000_000,
    "pg_conf.restart": 1,
  });
  const { program, folder } = await startWithFile(content("first password"));
  await program.line("ready");
  const client = await connectAsSuperuser(role);
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT 1 FROM pg_advisory_xact_lock_shared(1)");
  await waitForRun(client, id);
  return {
    program,
    client,
    id,
    setPassword: () => admin.query(`ALTER ROLE ${role} PASSWORD 'second password'`),
    reload: async () => {
      await replaceConfig(folder, content("second password"));
      await program.line("configuration reloaded");
    },
    release: () => client.query("SELECT pg_advisory_unlock(1)"),
  };
}

test("a running task does not keep the others from starting when the password has changed", async () => {
  const { program, client, id, setPassword, reload, release } = await startRunning("renewed");
  await setPassword();
  await reload();
  await program.line("serving table", 2);
  await waitForState(client, await insertTask(client, "SELECT 1", "other"), "DONE");
  await waitForRun(client, id);
  await release();
  await waitForState(client, id, "DONE");
  assert.deepEqual(program.linesMatching(/orphaned/), []);
  await program.stop();
});

test("a manager whose login is refused leaves its results to the next one at once", async () => {
  const { program, client, id, setPassword, reload, release } = await startRunning("cut");
  await setPassword();
  await admin.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg\\_work %' AND usename = 'cut'`,
  );
  await program.logged(({ msg, reason }) => msg === "manager unavailable, retrying" && /28P01/.test(String(reason)));
  await release();
  const hasEnded = `SELECT FROM pg_stat_activity WHERE usename = 'cut' AND state <> 'idle'`;
  await poll(
    () => admin.query(hasEnded),
    ({ rowCount }) => rowCount === 0,
  );
  await reload();
  assert.equal((await program.line("results not written, the next start settles these tasks"))["tasks"], 1);
  await waitForState(client, id, "DONE");
  await program.stop();
});

test("a corrected password file is used at the next attempt to connect, without a signal", async () => {
  await createOwner("filed");
  const file = join(await temporaryFolder(), "passwords");
  const setFile = (password: string) => writeFile(file, `*:*:*:filed:${password}\n`, { mode: 0o600 });
  await setFile("wrong");
  const content = {
    url: withPassword,
    "pg_task.json": [{ data: "filed" }],
    "pg_conf.restart": 1,
    "pg_work.restart": 1,
  };
  const endManager = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE application_name LIKE 'pg\\_work %' AND usename = 'filed'`;
  // Its threads read the variable from the environment of their process.
  const program = await startProcess({ config: content, env: { PGPASSFILE: file } });
  assert.match(String((await program.line("manager unavailable, retrying"))["reason"]), /28P01/);
  await setFile("first password");
  await program.line("serving table");

  // The connection of the manager stays, and a new session needs the new password.
  await admin.query("ALTER ROLE filed PASSWORD 'second password'");
  const client = await connectAsSuperuser("filed");
  await client.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  await program.line("cannot open a session, tasks wait");
  await setFile("second password");
  await program.line("the server accepts new sessions again");
  await waitForRow(client, "SELECT FROM task WHERE state = 'DONE'", []);

  // A superuser's remote task in the manager's own role reads the file as well.
  await admin.query("ALTER ROLE filed SUPERUSER PASSWORD 'third password'");
  await setFile("third password");
  // A manager reads when it connects whether its role is a superuser.
  await admin.query(endManager);
  await program.line("serving table", 2);
  await client.query("INSERT INTO task (input, remote) VALUES ('SELECT session_user', 'dbname=postgres')");
  const { output } = await waitForRow<{ output: string }>(
    client,
    "SELECT output FROM task WHERE remote IS NOT NULL AND state = 'DONE'",
    [],
  );
  assert.equal(output, "filed");

  // The reason why the file is not used is named.
  await chmod(file, 0o644);
  await admin.query(endManager);
  const why = /none was given.*permissions should be u=rw/;
  await program.until(() => program.lines.some(({ reason }) => why.test(String(reason))), String(why));
  await program.stop();
});

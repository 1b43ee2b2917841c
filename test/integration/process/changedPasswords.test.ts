import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { z } from "zod";
import { cli } from "../../support/cli.js";
import { replaceConfig, configFolder } from "../../support/configFile.js";
import { doctor } from "../../support/doctor.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { token, Web, poll } from "../../support/web.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { controlPassword, PasswordServer, startWith, startWithFile } from "../../support/passwordServer.js";

const server = await PasswordServer.start();
const { admin } = server;
const withPassword = server.urlOf("postgres", controlPassword);
const env = { PGPASSWORD: controlPassword };

const statusSchema = z.object({
  tables: z.array(z.object({ sessionsRefused: z.object({ sqlState: z.string().nullable() }).nullable() })),
});

/** Waits until `/ready` answers with this status. */
const readyAs = (web: Web, status: number) =>
  poll(
    () => web.requestWithoutToken("/ready"),
    (answer) => answer.status === status,
  );

test("a table whose sessions are refused is not served, and /ready, /health and the metrics say so", async () => {
  await server.createOwner("changed");
  const content = {
    ...server.config({ data: "changed", password: "first password" }),
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_work.restart": 1,
  };
  const { program, folder } = await startWithFile(content, env);
  const web = await Web.connect(program);
  await program.line("ready");
  assert.equal((await web.requestWithoutToken("/ready")).status, 200);
  await admin.query("ALTER ROLE changed PASSWORD 'second password'");
  const client = await server.connect("changed");
  await client.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  await program.line("cannot open a session, tasks wait");
  const ready = await readyAs(web, 503);
  assert.deepEqual([ready.status, ready.text], [503, "not ready: the server refuses the sessions of the tables\n"]);
  const { managers } = healthSchema.parse(JSON.parse((await web.request("/health")).text));
  assert.equal(managers[0]?.manager?.state, "working");
  assert.equal(managers[0]?.manager?.sessionsRefused?.code, "CONNECTION_REJECTED");
  assert.match(managers[0]?.manager?.sessionsRefused?.reason ?? "", /28P01/);
  const open = healthSchema.parse(JSON.parse((await web.requestWithoutToken("/health")).text));
  assert.deepEqual(open.managers[0]?.manager?.sessionsRefused, { code: "CONNECTION_REJECTED", reason: null });
  assert.match((await web.requestWithoutToken("/metrics")).text, /^pg_task_manager_up\{.*\} 0$/m);

  await replaceConfig(folder, { ...content, ...server.config({ data: "changed", password: "second password" }) });
  await waitForRow(client, "SELECT FROM task WHERE state = 'DONE'", []);
  await readyAs(web, 200);
  await program.stop();
});

test("why, doctor and status say that sessions are refused also while others are busy", async () => {
  await server.createOwner("busy");
  const content = { ...server.config({ data: "busy", password: "first password" }), "pg_work.restart": 1 };
  const program = startWith(content, env);
  await program.line("ready");
  const client = await server.connect("busy");
  await client.query("SELECT pg_advisory_lock(1)");
  const insert = (input: string, group: string) =>
    client.query('INSERT INTO task (input, "group") VALUES ($1, $2)', [input, group]);
  const ofRun = "wait_event_type = 'Lock' AND application_name LIKE 'pg\\_task %'";
  for (const group of ["one", "two"]) await insert("SELECT pg_advisory_lock_shared(1)", group);
  await waitForRow(client, `SELECT FROM pg_stat_activity WHERE ${ofRun} HAVING count(*) = 2`, []);

  const entry = { data: "busy", user: "postgres", password: controlPassword };
  const cwd = await configFolder(server.config(entry));
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

test("a changed password shows at a reload, although no task is due", async () => {
  await server.createOwner("idle");
  const content = {
    ...server.config({ data: "idle", password: "first password", sleep: 10 }),
    "pg_task.idle": 1_000_000,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_work.restart": 1,
    "pg_conf.restart": 1,
  };
  const { program } = await startWithFile(content, env);
  const web = await Web.connect(program);
  await program.line("ready");
  await readyAs(web, 200);
  await admin.query("ALTER ROLE idle PASSWORD 'second password'");
  await program.reload();
  await program.line("changed parameters not applied yet, retrying");
  const refused = await readyAs(web, 503);
  assert.match(refused.text, /the server refuses the sessions of the tables/);
  await admin.query("ALTER ROLE idle PASSWORD 'first password'");
  await readyAs(web, 200);
  assert.deepEqual(program.linesMatching("the server refuses new sessions"), []);
  await program.stop();
});

/** Starts a pg-task whose table is in a database of its own, and a task in it that runs until a lock is released. */
async function startRunning(role: string) {
  await server.createOwner(role);
  const content = (password: string): object => ({
    ...server.config({ data: role, password, sleep: 100 }),
    // The test would not end if the grace period was waited for.
    "pg_conf.grace": 2_000_000_000,
    "pg_conf.restart": 1,
  });
  const { program, folder } = await startWithFile(content("first password"), env);
  await program.line("ready");
  const client = await server.connect(role);
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
  await waitForState(client, await insertTask(client, "SELECT 1", { group: "other" }), "DONE");
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
  await server.createOwner("filed");
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
  const client = await server.connect("filed");
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
  await waitForRow(client, "SELECT FROM task WHERE remote IS NOT NULL AND state = 'DONE' AND output = 'filed'");

  // The reason why the file is not used is named.
  await chmod(file, 0o644);
  await admin.query(endManager);
  const why = /none was given.*permissions should be u=rw/;
  await program.until(() => program.lines.some(({ reason }) => why.test(String(reason))), String(why));
  await program.stop();
});

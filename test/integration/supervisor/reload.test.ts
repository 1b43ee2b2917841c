import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { after, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { doctor } from "../../support/doctor.js";
import { replaceConfig } from "../../support/configFile.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import type { LogLine } from "../../support/logLines.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";

const server = await RestartableServer.create(await freePort());
await server.start();
const { url } = server;
const client = await connectTo(url);
const other = await connectTo(url);
after(() => Promise.all([client.end(), other.end()]));
const own = { data: "postgres" };
const keyOf = (table: string): string => `127.0.0.1:${server.port}/postgres/public.${table}`;
const reloaded = "configuration reloaded";
const rejected = "configuration not reloaded, keeping the old one";

async function start(config: object): Promise<TestProcess> {
  const program = await startProcess({ config: { url, "pg_conf.restart": 1, ...config } });
  await program.line("ready");
  return program;
}

async function insertInto(table: string, input: string): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO ${table} (input, "group") VALUES ($1, md5(random()::text)) RETURNING id`,
    [input],
  );
  return rows[0]?.id ?? "";
}

const stateIn = async (table: string, id: string, state: string): Promise<{ output: string }> =>
  await waitForRow(client, `SELECT * FROM ${table} WHERE id = $1 AND state = $2::text::state`, [id, state]);

async function managerOf(table: string): Promise<{ pid: number; name: string }> {
  return await waitForRow(
    client,
    `SELECT pid, application_name AS name FROM pg_stat_activity
     WHERE application_name ~ ('^pg_work public ' || $1 || ' ')`,
    [table],
  );
}

const changesIn = (line: LogLine): unknown => {
  const { added, removed, changed, parameters } = line;
  return { added, removed, changed, parameters };
};

it("starts new entries, stops removed ones after their tasks, and leaves the others alone", async () => {
  const program = await start({ "pg_task.json": [own, { ...own, table: "leaving" }] });
  const before = await managerOf("task");
  await client.query("SELECT pg_advisory_lock(1)");
  const running = await insertInto("task", "SELECT pg_advisory_lock_shared(1)");
  const leaving = await insertInto("leaving", "SELECT pg_advisory_lock_shared(1)");
  await waitForRun(client, running, "task");
  await waitForRun(client, leaving, "leaving");
  await replaceConfig(program, { url, "pg_task.json": [own, { ...own, table: "coming" }] });
  assert.deepEqual(changesIn(await program.line(reloaded)), {
    added: [keyOf("coming")],
    removed: [keyOf("leaving")],
    changed: { [keyOf("task")]: ["pg_conf.restart"] },
    parameters: ["pg_conf.restart"],
  });
  await stateIn("coming", await insertFirst("coming"), "DONE");
  const late = await insertInto("leaving", "SELECT 1");
  await client.query("SELECT pg_advisory_unlock(1)");
  await stateIn("leaving", leaving, "DONE");
  await stateIn("task", running, "DONE");
  await waitForRow(
    client,
    "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^pg_work public leaving ' HAVING count(*) = 0",
  );
  const { rows } = await client.query("SELECT FROM leaving WHERE id = $1 AND state = 'PLAN'", [late]);
  assert.equal(rows.length, 1, "a removed entry starts nothing more");
  assert.deepEqual(await managerOf("task"), before);

  // When the entry is added again, its tasks continue to run.
  await replaceConfig(program, { url, "pg_task.json": [own, { ...own, table: "leaving" }] });
  await stateIn("leaving", late, "DONE");
  assert.equal((await program.end()).code, 0);
});

/** Inserts a task as soon as the table exists. */
async function insertFirst(table: string): Promise<string> {
  await waitForRow(client, "SELECT FROM pg_class WHERE relname = $1", [table]);
  return await insertInto(table, "SELECT 1");
}

it("cancels a removed entry's task when the grace period ends", async () => {
  const program = await start({
    "pg_conf.grace": 0,
    "pg_task.json": [own, { ...own, table: "short" }],
  });
  const id = await insertInto("short", "SELECT pg_sleep(3600)");
  await waitForRun(client, id, "short");
  await replaceConfig(program, { url, "pg_conf.grace": 0, "pg_task.json": [own] });
  await program.line("cancelling running tasks");
  await stateIn("short", id, "PLAN");
  assert.equal((await program.end()).code, 0);
});

it("applies a changed grace period", async () => {
  const program = await start({ "pg_conf.grace": 3_600_000 });
  const id = await insertInto("task", "SELECT pg_sleep(3600)");
  await waitForRun(client, id, "task");
  await replaceConfig(program, { url, "pg_conf.grace": 1 });
  await program.line(reloaded);
  assert.equal((await program.end()).code, 0);
  await stateIn("task", id, "PLAN");
  await client.query("DELETE FROM task");
});

it("keeps the old configuration when the file is invalid, incomplete or missing, and logs why", async () => {
  const program = await start({});
  const file = join(program.cwd, "pg_task.json");
  await replaceConfig(program, `{"url": "${url}", "pg_task.sl`);
  const syntax = await program.line(rejected);
  // The same problem of the same file is logged once. The second change is handled after the signal.
  program.child.kill("SIGHUP");
  assert.equal(syntax["code"], "CONFIG_SYNTAX");
  assert.match(String(syntax["reason"]), /pg_task\.json:1:\d+: not JSON: /);
  const atStart = await startProcess({ config: undefined, cwd: program.cwd });
  assert.equal((await atStart.exit).code, 2);
  assert.equal(atStart.output.stderr.trim(), `pg-task: ${String(syntax["reason"])}`);

  await replaceConfig(program, { url, "pg_task.sleep": 0 });
  assert.match(
    String((await program.line(rejected, 2))["reason"]),
    /pg_task\.json: \["?pg_task\.sleep"?\]|pg_task\.sleep: expected a whole number/,
  );
  await rm(file);
  assert.equal((await program.line(rejected, 3))["code"], "CONFIG_FILE_UNREADABLE");
  await stateIn("task", await insertInto("task", "SELECT 1"), "DONE");
  await replaceConfig(program, { url, "pg_task.sleep": 321 });
  await program.line(reloaded);
  await program.line("settings changed");
  await waitForRow(client, "SELECT FROM pg_stat_activity WHERE application_name = 'pg_work public task 321'");
  assert.equal(program.linesMatching(rejected).length, 3);
  assert.equal((await program.end()).code, 0);
});

it("replaces a manager whose user or password changed, after its tasks", async () => {
  await client.query("CREATE ROLE successor LOGIN SUPERUSER");
  const program = await start({ "pg_task.json": [own] });
  const before = await managerOf("task");
  await client.query("SELECT pg_advisory_lock(2)");
  const running = await insertInto("task", "SELECT pg_advisory_lock_shared(2)");
  await waitForRun(client, running, "task");
  await replaceConfig(program, {
    url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ data: "postgres", user: "successor", password: "another" }],
  });
  assert.deepEqual(changesIn(await program.line(reloaded)), {
    added: [],
    removed: [],
    changed: { [keyOf("task")]: ["user", "password"] },
    parameters: [],
  });
  assert.ok(!program.output.stdout.includes("another"));
  await client.query("SELECT pg_advisory_unlock(2)");
  await program.line("serving table", 2);
  await stateIn("task", running, "DONE");
  assert.notEqual((await managerOf("task")).pid, before.pid);
  const id = await insertInto("task", "SELECT session_user");
  assert.equal((await stateIn("task", id, "DONE")).output, "successor");
  assert.equal((await program.end()).code, 0);
});

it("warns that a changed cluster name or control connection applies at the next start", async () => {
  await client.query("CREATE DATABASE elsewhere");
  const program = await start({ "pg_task.json": [own] });
  await replaceConfig(program, {
    url: url.replace(/postgres$/, "elsewhere"),
    "pg_conf.name": "renamed",
    "pg_task.json": [own, { ...own, table: "besides" }],
  });
  const warning = await program.line(/needs a restart$/);
  assert.deepEqual(warning["changed"], ["url", "pg_conf.name"]);
  assert.deepEqual(changesIn(await program.line(reloaded)), {
    added: [keyOf("besides")],
    removed: [],
    changed: { [keyOf("task")]: ["pg_conf.restart"] },
    parameters: ["pg_conf.restart"],
  });
  await stateIn("besides", await insertFirst("besides"), "DONE");
  // The process still leads the cluster with the old name, in the old control database.
  const standby = await startProcess({ config: { url } });
  await standby.line("standby");
  assert.equal((await standby.end()).code, 0);
  assert.equal(program.linesMatching(/needs a restart$/).length, 1);
  assert.equal((await program.end()).code, 0);
});

it("says if the leader has other entries, until the entries are the same", async () => {
  const differs = "standby with other entries than the leader";
  const leader = await start({ "pg_task.json": [own] });
  const standby = await startProcess({ config: { url, "pg_task.json": [own, { ...own, table: "unserved" }] } });
  await standby.line("standby");
  assert.deepEqual((await standby.line(differs))["entries"], [keyOf("task"), keyOf("unserved")]);
  const { code, lines } = await doctor({}, standby.cwd);
  const found = lines.find(({ name }) => name === "leader");
  assert.equal(found?.level, "warn");
  assert.match(found.text, /the leader has other entries than this configuration/);
  assert.match(found.remedy, /pg_conf\.name/);
  assert.equal(code, 4, "nobody serves one of the tables");

  // A leader whose entries change says so to others.
  await replaceConfig(leader, { url, "pg_task.json": [own, { ...own, table: "unserved" }] });
  await leader.line(reloaded);
  await leader.line("serving table", 2);
  const again = await doctor({}, standby.cwd);
  assert.equal(again.lines.find(({ name }) => name === "leader")?.level, "ok");
  assert.equal(again.code, 0, JSON.stringify(again.lines));
  const third = await startProcess({ config: { url, "pg_task.json": [{ ...own, table: "unserved" }, own] } });
  await third.line("standby");
  await replaceConfig(third, { url, "pg_task.json": [own] });
  await third.line(differs);
  assert.equal(third.linesMatching(differs).length, 1);
  for (const program of [third, standby, leader]) assert.equal((await program.end()).code, 0);
});

it("a standby applies its changed file when it becomes leader", async () => {
  const leader = await start({ "pg_task.json": [own] });
  const standby = await startProcess({ config: { url, "pg_task.json": [own] } });
  await standby.line("standby");
  await replaceConfig(standby, { url, "pg_task.json": [{ ...own, table: "later" }] });
  assert.deepEqual(changesIn(await standby.line(reloaded)), {
    added: [keyOf("later")],
    removed: [keyOf("task")],
    changed: {},
    parameters: [],
  });
  assert.equal((await leader.end()).code, 0);
  await standby.line("ready");
  await stateIn("later", await insertFirst("later"), "DONE");
  const { rows } = await client.query("SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_work public task '");
  assert.equal(rows.length, 0);
  assert.equal((await standby.end()).code, 0);
});

it("reloads the file and the server's settings on SIGHUP, and ignores a rewrite without changes", async () => {
  const program = await start({ "pg_task.json": [own] });
  await client.query("ALTER DATABASE postgres SET pg_task.sleep = 234");
  program.child.kill("SIGHUP");
  assert.deepEqual(changesIn(await program.line(reloaded)), {
    added: [],
    removed: [],
    changed: {},
    parameters: [],
  });
  assert.equal((await program.line("settings changed"))["sleepMs"], 234);
  await client.query("ALTER DATABASE postgres RESET pg_task.sleep");
  await replaceConfig(program, { url, "pg_conf.restart": 1, "pg_task.json": [own] });
  await replaceConfig(program, {
    url,
    "pg_conf.restart": 1,
    "pg_task.json": [own],
    "pg_task.idle": 59,
  });
  await program.line(reloaded, 2);
  assert.equal(program.linesMatching(reloaded).length, 2);
  assert.equal((await program.end()).code, 0);
});

it("without a file, SIGHUP logs that there is none and reloads the server's settings", async () => {
  const program = await startProcess({ env: { DATABASE_URL: url } });
  await program.line("ready");
  await client.query("ALTER DATABASE postgres SET pg_task.sleep = 345");
  program.child.kill("SIGHUP");
  await program.line("no configuration file: only the server's settings are read again");
  assert.equal((await program.line("settings changed"))["sleepMs"], 345);
  await client.query("ALTER DATABASE postgres RESET pg_task.sleep");
  assert.equal((await program.end()).code, 0);
});

it("handles SIGHUP while its embedded server starts, and reloads afterwards", async () => {
  const program = await startProcess({ args: ["start", "--embedded"], config: [own] });
  await program.line(/^creating the data folder/);
  program.child.kill("SIGHUP");
  await program.line(reloaded);
  const ready = await program.line("ready");
  await replaceConfig(program, [own, { ...own, table: "second" }]);
  await program.line(reloaded, 2);
  const inside = await connectTo(String(ready["url"]));
  await waitForRow(inside, "SELECT FROM pg_class WHERE relname = 'second'");
  await inside.end();
  await replaceConfig(program, { url, "pg_task.json": [own] });
  assert.equal((await program.line(rejected))["code"], "CONFIG_CONFLICT");
  assert.equal((await program.end()).code, 0);
});

it("changes column defaults without blocking producers, as soon as it gets the lock", async () => {
  const program = await start({ "pg_task.json": [own] });
  await client.query("BEGIN");
  await client.query("LOCK TABLE task IN ROW EXCLUSIVE MODE");
  await replaceConfig(program, {
    url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ ...own, "pg_task.group": "changed", "pg_task.plan": "now() + interval '1 day'" }],
  });
  const waits = await program.line("changed parameters not applied yet, retrying");
  assert.equal(waits["code"], "SCHEMA_LOCKED");
  assert.ok(Number.isInteger(waits["pauseMs"]), JSON.stringify(waits));
  // Other sessions get the lock between two attempts, and after a short wait during an attempt.
  const meanwhile = await insertTask(other, "SELECT 1");
  await waitForState(other, meanwhile, "DONE");
  await client.query("COMMIT");
  await program.line("column defaults changed");
  const { rows } = await client.query<{ group: string; later: boolean }>(
    `INSERT INTO task (input) VALUES ('SELECT 1') RETURNING "group", plan > now() AS later`,
  );
  assert.deepEqual(rows[0], { group: "changed", later: true });
  await replaceConfig(program, { url, "pg_conf.restart": 1, "pg_task.json": [own] });
  await program.line("column defaults changed", 2);
  const again = await client.query<{ group: string; later: boolean }>(
    `INSERT INTO task (input) VALUES ('SELECT 1') RETURNING "group", plan > now() AS later`,
  );
  assert.deepEqual(again.rows[0], { group: "group", later: false });
  assert.equal((await program.end()).code, 0);
});

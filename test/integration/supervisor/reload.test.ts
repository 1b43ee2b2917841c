import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { after, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { cli } from "../../support/cli.js";
import { doctor } from "../../support/doctor.js";
import { configFolder, replaceConfig } from "../../support/configFile.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import type { LogLine } from "../../support/logLines.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";

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

const start = async (config: object): Promise<PgTask> => await startPgTask({ url, "pg_conf.restart": 1, ...config });

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
  const pgTask = await start({ "pg_task.json": [own, { ...own, table: "leaving" }] });
  const before = await managerOf("task");
  await client.query("SELECT pg_advisory_lock(1)");
  const running = await insertInto("task", "SELECT pg_advisory_lock_shared(1)");
  const leaving = await insertInto("leaving", "SELECT pg_advisory_lock_shared(1)");
  await waitForRun(client, running, "task");
  await waitForRun(client, leaving, "leaving");
  await pgTask.reload({ url, "pg_task.json": [own, { ...own, table: "coming" }] });
  assert.deepEqual(changesIn(await pgTask.line(reloaded)), {
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
  await pgTask.reload({ url, "pg_task.json": [own, { ...own, table: "leaving" }] });
  await stateIn("leaving", late, "DONE");
  await pgTask.stop();
});

/** Inserts a task as soon as the table exists. */
async function insertFirst(table: string): Promise<string> {
  await waitForRow(client, "SELECT FROM pg_class WHERE relname = $1", [table]);
  return await insertInto(table, "SELECT 1");
}

it("cancels a removed entry's task when the grace period ends", async () => {
  const pgTask = await start({
    "pg_conf.grace": 0,
    "pg_task.json": [own, { ...own, table: "short" }],
  });
  const id = await insertInto("short", "SELECT pg_sleep(3600)");
  await waitForRun(client, id, "short");
  await pgTask.reload({ url, "pg_conf.grace": 0, "pg_task.json": [own] });
  await pgTask.line("cancelling running tasks");
  await stateIn("short", id, "PLAN");
  await pgTask.stop();
});

it("applies a changed grace period", async () => {
  const pgTask = await start({ "pg_conf.grace": 3_600_000 });
  const id = await insertInto("task", "SELECT pg_sleep(3600)");
  await waitForRun(client, id, "task");
  await pgTask.reload({ url, "pg_conf.grace": 1 });
  await pgTask.line(reloaded);
  await pgTask.stop();
  await stateIn("task", id, "PLAN");
  await client.query("DELETE FROM task");
});

it("keeps the old configuration when the file is invalid, incomplete or missing, and logs why", async () => {
  const cwd = await configFolder({ url });
  const pgTask = await startPgTask(undefined, { cwd });
  const file = join(cwd, "pg_task.json");
  await replaceConfig(pgTask, `{"url": "${url}", "pg_task.sl`);
  const syntax = await pgTask.line(rejected);
  // The same problem of the same file is logged once.
  await assert.rejects(pgTask.reload(), { code: "CONFIG_SYNTAX" });
  assert.equal(syntax["code"], "CONFIG_SYNTAX");
  assert.match(String(syntax["reason"]), /pg_task\.json:1:\d+: not JSON: /);
  const atStart = new PgTask();
  atStart.launch(undefined, { cwd });
  assert.equal((await atStart.ended())?.message, syntax["reason"]);

  await replaceConfig(pgTask, { url, "pg_task.sleep": 0 });
  assert.match(
    String((await pgTask.line(rejected, 2))["reason"]),
    /pg_task\.json: \["?pg_task\.sleep"?\]|pg_task\.sleep: expected a whole number/,
  );
  await rm(file);
  assert.equal((await pgTask.line(rejected, 3))["code"], "CONFIG_FILE_UNREADABLE");
  await stateIn("task", await insertInto("task", "SELECT 1"), "DONE");
  await replaceConfig(pgTask, { url, "pg_task.sleep": 321 });
  await pgTask.line(reloaded);
  await pgTask.line("settings changed");
  await waitForRow(client, "SELECT FROM pg_stat_activity WHERE application_name = 'pg_work public task 321'");
  assert.equal(pgTask.linesMatching(rejected).length, 3);
  await pgTask.stop();
});

it("replaces a manager whose user or password changed, after its tasks", async () => {
  await client.query("CREATE ROLE successor LOGIN SUPERUSER");
  const pgTask = await start({ "pg_task.json": [own] });
  const before = await managerOf("task");
  await client.query("SELECT pg_advisory_lock(2)");
  const running = await insertInto("task", "SELECT pg_advisory_lock_shared(2)");
  await waitForRun(client, running, "task");
  await pgTask.reload({
    url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ data: "postgres", user: "successor", password: "another" }],
  });
  assert.deepEqual(changesIn(await pgTask.line(reloaded)), {
    added: [],
    removed: [],
    changed: { [keyOf("task")]: ["user", "password"] },
    parameters: [],
  });
  assert.ok(!JSON.stringify(pgTask.lines).includes("another"));
  await client.query("SELECT pg_advisory_unlock(2)");
  await pgTask.line("serving table", 2);
  await stateIn("task", running, "DONE");
  assert.notEqual((await managerOf("task")).pid, before.pid);
  const id = await insertInto("task", "SELECT session_user");
  assert.equal((await stateIn("task", id, "DONE")).output, "successor");
  await pgTask.stop();
});

it("warns that a changed cluster name or control connection applies at the next start", async () => {
  await client.query("CREATE DATABASE elsewhere");
  const pgTask = await start({ "pg_task.json": [own] });
  await pgTask.reload({
    url: url.replace(/postgres$/, "elsewhere"),
    "pg_conf.name": "renamed",
    "pg_task.json": [own, { ...own, table: "besides" }],
  });
  const warning = await pgTask.line(/needs a restart$/);
  assert.deepEqual(warning["changed"], ["url", "pg_conf.name"]);
  assert.deepEqual(changesIn(await pgTask.line(reloaded)), {
    added: [keyOf("besides")],
    removed: [],
    changed: { [keyOf("task")]: ["pg_conf.restart"] },
    parameters: ["pg_conf.restart"],
  });
  await stateIn("besides", await insertFirst("besides"), "DONE");
  // The process still leads the cluster with the old name, in the old control database.
  const standby = await startPgTask({ url });
  await standby.stop();
  assert.equal(pgTask.linesMatching(/needs a restart$/).length, 1);
  await pgTask.stop();
});

/** Returns what `status` with this configuration says about the entries of each standby. */
async function otherEntries(cwd: string): Promise<readonly (string | null)[]> {
  const status = JSON.parse((await cli(["status", "--json"], { cwd })).stdout);
  return status.cluster.standbys.map((each: { otherEntries: string | null }) => each.otherEntries);
}

it("says if the leader has other entries, until the entries are the same", async () => {
  const differs = "standby with other entries than the leader";
  const leader = await start({ "pg_task.json": [own] });
  const cwd = await configFolder({ url, "pg_task.json": [own, { ...own, table: "unserved" }] });
  const standby = await startPgTask(undefined, { cwd });
  assert.deepEqual((await standby.line(differs))["entries"], [keyOf("task"), keyOf("unserved")]);
  const { code, lines } = await doctor({}, cwd);
  const found = lines.find(({ name }) => name === "leader");
  assert.equal(found?.level, "warn");
  const ofLeader = `other entries than this configuration (only this configuration has ${keyOf("unserved")}): nobody`;
  assert.ok(found.text.includes(ofLeader), found.text);
  assert.deepEqual(await otherEntries(cwd), [`only it has ${keyOf("unserved")}`]);
  // The leader's configuration cannot name what only the standby has. A standby of another cluster is not compared.
  const leading = await configFolder({ url, "pg_task.json": [own] });
  const elsewhere = { url, "pg_conf.name": "elsewhere", "pg_task.json": [{ ...own, table: "elsewhere" }] };
  const [leaderElsewhere, standbyElsewhere] = [await startPgTask(elsewhere), await startPgTask(elsewhere)];
  const unnamed = "only it has 1 that this configuration does not name";
  assert.deepEqual(new Set(await otherEntries(leading)), new Set([unnamed, null]));
  const { lines: fromLeader } = await doctor({}, leading);
  const others = fromLeader.find(({ name }) => name === "leader");
  assert.equal(others?.level, "warn");
  assert.match(others.text, new RegExp(`; the standby of server process \\d+ has other entries \\(${unnamed}\\)$`));
  await standbyElsewhere.stop();
  await leaderElsewhere.stop();
  assert.match(found.remedy, /pg_conf\.name/);
  assert.equal(code, 4, "nobody serves one of the tables");

  // A leader whose entries change says so to others.
  await leader.reload({ url, "pg_task.json": [own, { ...own, table: "unserved" }] });
  await leader.line(reloaded);
  await leader.line("serving table", 2);
  const again = await doctor({}, cwd);
  assert.equal(again.lines.find(({ name }) => name === "leader")?.level, "ok");
  assert.equal(again.code, 0, JSON.stringify(again.lines));
  const third = await startPgTask({ url, "pg_task.json": [{ ...own, table: "unserved" }, own] });
  await third.reload({ url, "pg_task.json": [own] });
  await third.line(differs);
  assert.equal(third.linesMatching(differs).length, 1);
  for (const pgTask of [third, standby, leader]) await pgTask.stop();
});

it("a standby applies its changed file when it becomes leader", async () => {
  const leader = await start({ "pg_task.json": [own] });
  const standby = await startPgTask({ url, "pg_task.json": [own] });
  await standby.reload({ url, "pg_task.json": [{ ...own, table: "later" }] });
  assert.deepEqual(changesIn(await standby.line(reloaded)), {
    added: [keyOf("later")],
    removed: [keyOf("task")],
    changed: {},
    parameters: [],
  });
  await leader.stop();
  await standby.line("ready");
  await stateIn("later", await insertFirst("later"), "DONE");
  const { rows } = await client.query("SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_work public task '");
  assert.equal(rows.length, 0);
  await standby.stop();
});

it("reloads the file and the server's settings on request, and ignores a rewrite without changes", async () => {
  const config = { url, "pg_conf.restart": 1, "pg_task.json": [own] };
  const pgTask = await startPgTask(undefined, { cwd: await configFolder(config) });
  await client.query("ALTER DATABASE postgres SET pg_task.sleep = 234");
  await pgTask.reload();
  assert.deepEqual(changesIn(await pgTask.line(reloaded)), {
    added: [],
    removed: [],
    changed: {},
    parameters: [],
  });
  assert.equal((await pgTask.line("settings changed"))["sleepMs"], 234);
  await client.query("ALTER DATABASE postgres RESET pg_task.sleep");
  await replaceConfig(pgTask, config);
  await replaceConfig(pgTask, { ...config, "pg_task.idle": 59 });
  await pgTask.line(reloaded, 2);
  assert.equal(pgTask.linesMatching(reloaded).length, 2);
  await pgTask.stop();
});

it("without a file, a request logs that there is none and reloads the server's settings", async () => {
  const pgTask = await startPgTask(undefined, { env: { DATABASE_URL: url } });
  await client.query("ALTER DATABASE postgres SET pg_task.sleep = 345");
  await pgTask.reload();
  await pgTask.line("no configuration file: only the server's settings are read again");
  assert.equal((await pgTask.line("settings changed"))["sleepMs"], 345);
  await client.query("ALTER DATABASE postgres RESET pg_task.sleep");
  await pgTask.stop();
});

it("changes column defaults without blocking producers, as soon as it gets the lock", async () => {
  const pgTask = await start({ "pg_task.json": [own] });
  await client.query("BEGIN");
  await client.query("LOCK TABLE task IN ROW EXCLUSIVE MODE");
  await pgTask.reload({
    url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ ...own, "pg_task.group": "changed", "pg_task.plan": "now() + interval '1 day'" }],
  });
  const waits = await pgTask.line("changed parameters not applied yet, retrying");
  assert.equal(waits["code"], "SCHEMA_LOCKED");
  assert.ok(Number.isInteger(waits["pauseMs"]), JSON.stringify(waits));
  // Other sessions get the lock between two attempts, and after a short wait during an attempt.
  const meanwhile = await insertTask(other, "SELECT 1");
  await waitForState(other, meanwhile, "DONE");
  await client.query("COMMIT");
  await pgTask.line("column defaults changed");
  const { rows } = await client.query<{ group: string; later: boolean }>(
    `INSERT INTO task (input) VALUES ('SELECT 1') RETURNING "group", plan > now() AS later`,
  );
  assert.deepEqual(rows[0], { group: "changed", later: true });
  await pgTask.reload({ url, "pg_conf.restart": 1, "pg_task.json": [own] });
  await pgTask.line("column defaults changed", 2);
  const again = await client.query<{ group: string; later: boolean }>(
    `INSERT INTO task (input) VALUES ('SELECT 1') RETURNING "group", plan > now() AS later`,
  );
  assert.deepEqual(again.rows[0], { group: "group", later: false });
  await pgTask.stop();
});

import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { createDatabase, serverMajor } from "../../support/database.js";
import { replaceConfig } from "../../support/configFile.js";
import { doctor } from "../../support/doctor.js";
import { PgTask } from "../../support/pgTask.js";
import { processesOfFile, type ProcessOptions, type TestProcess } from "../../support/process.js";
import { recordEffect, valueOf, insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
import { occupyPort, token, Web } from "../../support/web.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const same: ProcessOptions = { config: { url: database.url }, forked: true };

beforeEach(() => client.query("DELETE FROM task"));

/** The leader that the test before has left. */
let last: TestProcess | null = null;

/** Starts a standby beside the leader that the test before has left, or beside a new one. */
async function startPair(): Promise<{ leader: TestProcess; standby: TestProcess }> {
  const leader = last ?? (await startProcess(same));
  last = null;
  await leader.line("ready");
  const standby = await startProcess({ ...same, until: "standby" });
  return { leader, standby };
}

/** Waits until the leader has ended, which has left no task for its standby to rescue. The next test goes on with this one. */
async function takenOver(leader: TestProcess, standby: TestProcess): Promise<void> {
  await leader.stopped();
  assert.equal(standby.linesMatching("orphaned tasks rescued").length, 0);
  last = standby;
}

it("stands by beside a leader: reports ready to its parent and runs no managers", async () => {
  const { leader, standby } = await startPair();
  await standby.message("ready");
  assert.equal(standby.linesMatching("ready").length, 0, "only the leader logs it");
  assert.equal(standby.linesMatching("standby").length, 1);
  const { rows } = await client.query(
    `SELECT split_part(application_name, ' ', 1) AS role, count(*)::integer AS count FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_(conf|work)' GROUP BY role ORDER BY role`,
  );
  assert.deepEqual(rows, [
    { role: "pg_conf", count: 2 },
    { role: "pg_work", count: 1 },
  ]);
  await standby.stop();
  last = leader;
});

it("takes over from a killed leader and runs its tasks again", async () => {
  const { leader, standby } = await startPair();
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const first = await waitForRun(client, id);
  await leader.end("SIGKILL");
  await standby.line("ready");
  // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
  if ((await serverMajor()) < 14) {
    await client.query("SELECT pg_terminate_backend($1)", [first.pid]);
  }
  const second = await waitForRow<{ owner: string }>(
    client,
    "SELECT owner FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2",
    [id, first.owner],
  );
  assert.notEqual(second.owner, first.owner);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, id, "DONE")).crash, 0, "it is not the task's fault");
  last = standby;
});

it("takes over from a stopping leader while its tasks finish, and respects group limits", async () => {
  const { leader, standby } = await startPair();
  await client.query("CREATE TABLE effect (task bigint)");
  await client.query("SELECT pg_advisory_lock(1)");
  const running = await insertTask(client, `SELECT pg_advisory_lock_shared(1); ${recordEffect}`, { group: "one" });
  const { owner } = await waitForRun(client, running);
  leader.child.kill("SIGTERM");
  await leader.line(/^stopping/);
  // The new leader runs tasks of other groups at once.
  await waitForState(client, await insertTask(client, "SELECT 1", { group: "two" }), "DONE");
  await standby.line("serving table");
  // The group limit keeps the next task of the group from starting, although the new leader has seen the task.
  const next = await insertTask(client, "SELECT 1", { group: "one" });
  await waitForState(client, await insertTask(client, "SELECT 1", { group: "three" }), "DONE");
  assert.equal((await waitForState(client, next, "PLAN")).owner, null);
  assert.equal((await waitForRun(client, running)).owner, owner);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, running, "DONE")).crash, 0);
  await waitForState(client, next, "DONE");
  assert.equal(await valueOf(client, "SELECT task FROM effect"), running);
  assert.equal(standby.linesMatching("ready").length, 1);
  await takenOver(leader, standby);
});

it("stops a draining leader's task, and writes results after the manager's connection is lost", async () => {
  const { leader, standby } = await startPair();
  await client.query("SELECT pg_advisory_lock(1)");
  const [continued, stopped] = [
    await insertTask(client, "SELECT pg_advisory_lock_shared(1)", { group: "continued" }),
    await insertTask(client, "SELECT pg_sleep(600)", { group: "stopped" }),
  ];
  await waitForRun(client, continued);
  await waitForRun(client, stopped);
  const { rows } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_work'`,
  );
  leader.child.kill("SIGTERM");
  await standby.line("serving table");
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'STOP' AND error ~ 'user request'", [stopped]);
  await client.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, continued, "DONE")).output, "");
  await takenOver(leader, standby);
});

/**
 * Starts a task that inserts into a new table, and waits for advisory lock 1. It leaves no proof, so that it would run
 * again if it became an orphan. The connection `holder` in the result keeps the task's row locked.
 */
async function startLockedTask(table: string, begin = "") {
  await client.query(`CREATE TABLE ${table} (task bigint)`);
  await client.query("SELECT pg_advisory_lock(1)");
  const input = `${begin} INSERT INTO ${table} VALUES (1); SELECT pg_advisory_lock_shared(1)`;
  const id = await insertTask(client, input, { atomic: false });
  const { pid } = await waitForRun(client, id);
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
  return { id, pid, holder };
}

/** Leaves a session stale. */
const staling = "SELECT setseed(0.5);";

it("keeps a draining leader's session until its result is written", async () => {
  const { leader, standby } = await startPair();
  const { id, pid, holder } = await startLockedTask("run");
  await client.query("SELECT pg_advisory_unlock(1)");
  const ended = "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'idle'";
  await waitForRow(client, ended, [pid]);
  await waitForRow(client, "SELECT FROM run");
  leader.child.kill("SIGTERM");
  await standby.line("serving table");
  assert.equal((await client.query(ended, [pid])).rowCount, 1);
  await holder.query("COMMIT");
  await waitForState(client, id, "DONE");
  assert.equal((await client.query("SELECT FROM run")).rowCount, 1);
  await takenOver(leader, standby);
});

it("a draining leader keeps a stale session until its result is written", async () => {
  const { leader, standby } = await startPair();
  const { id, pid, holder } = await startLockedTask("late", staling);
  leader.child.kill("SIGTERM");
  await standby.line("serving table");
  await client.query("SELECT pg_advisory_unlock(1)");
  await waitForRow(client, "SELECT FROM late");
  // If the session were closed, this would take only a few milliseconds.
  await pause(500);
  const alive = await client.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid]);
  await holder.query("COMMIT");
  assert.equal(alive.rowCount, 1);
  await waitForState(client, id, "DONE");
  assert.equal((await client.query("SELECT FROM late")).rowCount, 1);
  await takenOver(leader, standby);
});

it("releases a table only after the results of closed sessions are written", async () => {
  const { leader, standby } = await startPair();
  const { id, pid, holder } = await startLockedTask("early", staling);
  await client.query("SELECT pg_advisory_unlock(1)");
  const gone = "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
  await waitForRow(client, gone, [pid]);
  leader.child.kill("SIGTERM");
  // The standby leads, but cannot serve this table yet.
  await standby.line(/^another manager holds the lock of the table/);
  await pause(500);
  const works = standby.linesMatching("serving table").length;
  await holder.query("COMMIT");
  assert.equal(works, 0);
  await waitForState(client, id, "DONE");
  await standby.line("serving table");
  assert.equal((await client.query("SELECT FROM early")).rowCount, 1);
  await takenOver(leader, standby);
});

it("releases tasks that a draining leader does not finish within its grace period, and the new leader runs them", async () => {
  await last?.end();
  last = null;
  const config = { url: database.url, "pg_conf.grace": 1500 };
  const leader = await startProcess({ config, until: "ready" });
  const standby = await startProcess({ config, until: "standby" });
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { owner } = await waitForRun(client, id);
  leader.child.kill("SIGTERM");
  await standby.line("serving table");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [id, owner]);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  await leader.stopped();
  await standby.stop();
});

/** Finds the backend of the leader. Locks in other databases belong to other tests. */
const leaderPid = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
  AND classid = ${lockClasses.supervisor} AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

it("never runs two managers for a table after a lost control connection", async () => {
  const { leader, standby } = await startPair();
  const { pid } = await waitForRow<{ pid: number }>(client, leaderPid);
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await leader.line("control connection lost");
  // One of the two processes has the lock now. If it is not the old leader, the old leader stops its managers.
  await Promise.race([leader.line("leadership regained"), leader.line("standby")]);
  if (leader.linesMatching("standby").length > 0) await standby.line("ready");
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_work' HAVING count(*) = 1`,
  );
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  const [leads, other] = leader.linesMatching("standby").length > 0 ? [standby, leader] : [leader, standby];
  await other.stop();
  last = leads;
});

/** Terminates the leader's connection, and waits until another connection has the lock. */
async function switchLeader(): Promise<void> {
  const { pid } = await waitForRow<{ pid: number }>(client, leaderPid);
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, `${leaderPid} AND pid <> ${pid}`);
}

it("logs ready once, however often it becomes leader", async () => {
  const { leader, standby } = await startPair();
  const leads = () => [leader, standby].map((each) => each.linesMatching("became leader").length);
  // Either process may get the lock, so the test repeats this until each of them has become leader twice.
  while (leads().some((times) => times < 2)) {
    await switchLeader();
    await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  }
  await leader.stop();
  await standby.stop();
  for (const each of [leader, standby]) {
    assert.equal(each.linesMatching("ready").length, 1);
    assert.deepEqual(each.messages, ["ready"]);
  }
});

/** Returns the backend of the manager that holds the lock of the table. */
async function managerBackend(): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::bigint::oid AND objid = 'task'::regclass
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [lockClasses.manager],
  );
  return rows[0]?.pid;
}

it("waits for a table that another cluster serves, and logs it once", async () => {
  await last?.end();
  last = null;
  const first = await startProcess({ ...same, until: "ready" });
  const second = new PgTask();
  second.launch({ url: database.url, "pg_conf.name": "other" });
  const waits = /^another manager holds the lock of the table/;
  await second.line(waits);
  // The process becomes ready without waiting for the table.
  await second.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  // If it lasts, the log and doctor tell which process has the table.
  const holder = await managerBackend();
  const keeps = await second.line("another manager keeps the table");
  assert.deepEqual(
    [keeps.level, keeps["backend"], keeps["application"], keeps["address"]],
    ["warn", holder, "pg_work public task 1000", "127.0.0.1"],
  );
  assert.match(String(keeps["remedy"]), /another control database or pg_conf\.name/);
  const { lines } = await doctor({ DATABASE_URL: database.url });
  const about = lines.find(({ name }) => name === "manager");
  assert.equal(about?.level, "warn");
  assert.match(
    about.text,
    new RegExp(
      `^server process ${holder} of 127\\.0\\.0\\.1 serves the table, and another pg-task waits for it: server process \\d+ `,
    ),
  );
  await first.stop();
  await second.line("serving table");
  assert.equal(second.linesMatching(waits).length, 1);
  assert.equal(second.linesMatching("another manager keeps the table").length, 1);
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await second.stop();
});

const health = async (web: Web): Promise<string> => (await web.requestWithoutToken("/health")).text;

it("leaves the port of the page to the leader, and takes it when the leader has ended", async () => {
  const { server, port } = await occupyPort();
  const config = { url: database.url, "pg_http.token": token };
  const page = { ...config, "pg_http.listen": `127.0.0.1:${port}` };
  const leader = await startProcess({ ...same, config, until: "ready" });
  server.close();
  const standby = await startProcess({ ...same, config: page, until: "standby" });
  const first = await Web.connect(standby);
  assert.match(await health(first), /"role":"standby"/);
  // A process of another cluster does not get the port.
  const stranger = new PgTask();
  stranger.launch({ ...page, "pg_conf.name": "stranger" });
  await stranger.line("HTTP address unavailable, retrying");
  await stranger.line("ready");
  assert.deepEqual(standby.linesMatching("HTTP port left to the leader"), []);
  await stranger.stop();
  await replaceConfig(leader, page);
  const second = await Web.connect(leader);
  assert.equal((await standby.line("HTTP port left to the leader"))["port"], port);
  assert.equal(second.url, first.url);
  assert.match(await health(second), /"role":"leader"/);
  // A third process starts while the port is in use.
  const third = await startProcess({ ...same, config: page });
  const shared = await third.line("HTTP address used by another process of the cluster, waiting");
  assert.deepEqual([shared.level, shared["port"]], ["info", port]);
  assert.deepEqual(third.linesMatching("HTTP address unavailable, retrying"), []);
  await third.end();
  await leader.end("SIGKILL");
  await Web.connect(standby, token, 2);
  await standby.line("ready");
  assert.match(await health(first), /"role":"leader"/);
  await standby.stop();
});

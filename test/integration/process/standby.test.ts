import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { createDatabase, serverMajor } from "../../support/database.js";
import { startProcess, type ProcessOptions, type TestProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForState } from "../../support/waitFor.js";

const database = await createDatabase();
const client = await database.connect();
const same: ProcessOptions = { config: { url: database.url }, forked: true };

beforeEach(() => client.query("DELETE FROM task"));

async function startPair(): Promise<{ leader: TestProcess; standby: TestProcess }> {
  const leader = await startProcess(same);
  await leader.line("ready");
  const standby = await startProcess(same);
  await standby.line("standby");
  return { leader, standby };
}

/** Who is connected as a manager now, and as a supervisor. */
async function connected(role: "pg_work" | "pg_conf"): Promise<number> {
  const { rows } = await client.query(
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ $1",
    [`^${role}`],
  );
  return rows.length;
}

it("stands by beside a leader: ready for its parent, without managers", async () => {
  const { leader, standby } = await startPair();
  await standby.message("ready");
  assert.equal(standby.said("ready").length, 0, "only the leader says so");
  assert.equal(standby.said("standby").length, 1);
  assert.equal(await connected("pg_conf"), 2);
  assert.equal(await connected("pg_work"), 1);
  assert.deepEqual(await standby.end(), { code: 0, signal: null });
  assert.equal((await leader.end()).code, 0);
});

it("takes over from a leader that was killed, and runs what that one ran", async () => {
  const { leader, standby } = await startPair();
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const first = await waitForState(client, id, "WORK");
  await leader.end("SIGKILL");
  await standby.line("ready");
  // Before 14 a server notices that a client is gone only when its statement has ended.
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
  assert.equal((await standby.end()).code, 0);
});

it("takes over from a leader that stops while that one's tasks run on, within the limits of groups", async () => {
  const { leader, standby } = await startPair();
  await client.query("CREATE TABLE effect (task bigint)");
  await client.query("SELECT pg_advisory_lock(1)");
  const running = await insertTask(
    client,
    "SELECT pg_advisory_lock_shared(1); INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)",
    "one",
  );
  const { owner } = await waitForState(client, running, "WORK");
  leader.child.kill("SIGTERM");
  await leader.line(/^stopping/);
  // Others run at once, by the new leader.
  await waitForState(client, await insertTask(client, "SELECT 1", "two"), "DONE");
  await standby.line("manager works");
  // What would run beside it does not, though the new leader has seen it.
  const behind = await insertTask(client, "SELECT 1", "one");
  await waitForState(client, await insertTask(client, "SELECT 1", "three"), "DONE");
  assert.equal((await waitForState(client, behind, "PLAN")).owner, null);
  assert.equal((await waitForState(client, running, "WORK")).owner, owner);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await leader.exit).code, 0);
  assert.equal((await waitForState(client, running, "DONE")).crash, 0);
  await waitForState(client, behind, "DONE");
  const { rows } = await client.query("SELECT task FROM effect");
  assert.deepEqual(rows, [{ task: running }]);
  assert.equal(standby.said("orphaned tasks rescued").length, 0);
  assert.equal(standby.said("ready").length, 1);
  assert.equal((await standby.end()).code, 0);
});

it("stops a task of a leader that drains, and writes its results, whatever becomes of its connection", async () => {
  const { leader, standby } = await startPair();
  await client.query("SELECT pg_advisory_lock(1)");
  const [kept, stopped] = [
    await insertTask(client, "SELECT pg_advisory_lock_shared(1)", "kept"),
    await insertTask(client, "SELECT pg_sleep(600)", "stopped"),
  ];
  await waitForState(client, kept, "WORK");
  await waitForState(client, stopped, "WORK");
  const { rows } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_work'`,
  );
  leader.child.kill("SIGTERM");
  await standby.line("manager works");
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  await waitForRow(
    client,
    "SELECT FROM task WHERE id = $1 AND state = 'STOP' AND error ~ 'user request'",
    [stopped],
  );
  await client.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await leader.exit).code, 0);
  assert.equal((await waitForState(client, kept, "DONE")).output, "");
  assert.equal(standby.said("orphaned tasks rescued").length, 0);
  assert.equal((await standby.end()).code, 0);
});

it("keeps the session of a leader that drains until what came out of it is written", async () => {
  const { leader, standby } = await startPair();
  await client.query("CREATE TABLE run (task bigint)");
  await client.query("SELECT pg_advisory_lock(1)");
  // Nothing proves what it has done: who took it for cut off would run it again.
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, atomic) VALUES ('INSERT INTO run VALUES (1); SELECT pg_advisory_lock_shared(1)', false)
     RETURNING id`,
  );
  const id = rows[0]?.id ?? "";
  const { pid } = await waitForState(client, id, "WORK");
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
  await client.query("SELECT pg_advisory_unlock(1)");
  const ended = "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'idle'";
  await waitForRow(client, ended, [pid]);
  await waitForRow(client, "SELECT FROM run");
  leader.child.kill("SIGTERM");
  await standby.line("manager works");
  assert.equal((await client.query(ended, [pid])).rowCount, 1);
  await holder.query("COMMIT");
  await waitForState(client, id, "DONE");
  assert.equal((await client.query("SELECT FROM run")).rowCount, 1);
  assert.equal((await leader.exit).code, 0);
  assert.equal(standby.said("orphaned tasks rescued").length, 0);
  assert.equal((await standby.end()).code, 0);
});

/**
 * Starts a task that ends, with a row in a new table, once advisory lock 1 is free, and whose session is given up
 * then. `holder` has the task's row locked.
 */
async function runSpoiling(table: string) {
  await client.query(`CREATE TABLE ${table} (task bigint)`);
  await client.query("SELECT pg_advisory_lock(1)");
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, atomic)
     VALUES ('SELECT setseed(0.5); INSERT INTO ${table} VALUES (1); SELECT pg_advisory_lock_shared(1)', false)
     RETURNING id`,
  );
  const id = rows[0]?.id ?? "";
  const { pid } = await waitForState(client, id, "WORK");
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
  return { id, pid, holder };
}

it("keeps a session that is to be given up until what came out of it is written, while a leader drains", async () => {
  const { leader, standby } = await startPair();
  const { id, pid, holder } = await runSpoiling("late");
  leader.child.kill("SIGTERM");
  await standby.line("manager works");
  await client.query("SELECT pg_advisory_unlock(1)");
  await waitForRow(client, "SELECT FROM late");
  // It would take a few milliseconds to end.
  await pause(500);
  const alive = await client.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid]);
  await holder.query("COMMIT");
  assert.equal(alive.rowCount, 1);
  await waitForState(client, id, "DONE");
  assert.equal((await client.query("SELECT FROM late")).rowCount, 1);
  assert.equal((await leader.exit).code, 0);
  assert.equal(standby.said("orphaned tasks rescued").length, 0);
  assert.equal((await standby.end()).code, 0);
});

it("lets a table go only when it has written what came out of sessions that are gone", async () => {
  const { leader, standby } = await startPair();
  const { id, pid, holder } = await runSpoiling("early");
  await client.query("SELECT pg_advisory_unlock(1)");
  const gone = "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
  await waitForRow(client, gone, [pid]);
  leader.child.kill("SIGTERM");
  // Others than that table need not wait.
  await standby.line(/^another manager has the table/);
  await pause(500);
  const works = standby.said("manager works").length;
  await holder.query("COMMIT");
  assert.equal(works, 0);
  await waitForState(client, id, "DONE");
  await standby.line("manager works");
  assert.equal((await client.query("SELECT FROM early")).rowCount, 1);
  assert.equal((await leader.exit).code, 0);
  assert.equal(standby.said("orphaned tasks rescued").length, 0);
  assert.equal((await standby.end()).code, 0);
});

it("returns what a leader that drains does not finish within its grace to the new one, which runs it", async () => {
  const config = { ...same, config: { url: database.url, "pg_conf.grace": 1500 } };
  const leader = await startProcess(config);
  await leader.line("ready");
  const standby = await startProcess(config);
  await standby.line("standby");
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { owner } = await waitForState(client, id, "WORK");
  leader.child.kill("SIGTERM");
  await standby.line("manager works");
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [
    id,
    owner,
  ]);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  assert.equal((await leader.exit).code, 0);
  assert.equal((await standby.end()).code, 0);
});

it("leads nobody into running managers twice, whoever loses the connection", async () => {
  const { leader, standby } = await startPair();
  const { rows } = await client.query<{ pid: number }>(
    // Those of other databases are other tests'.
    `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::oid
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [0x70677401],
  );
  await client.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
  await leader.line("the supervisor's connection ended");
  // One of the two has the lock now, and the other's managers go.
  await Promise.race([leader.line("leads again"), leader.line("standby")]);
  if (leader.said("standby").length > 0) await standby.line("ready");
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_work' HAVING count(*) = 1`,
  );
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  assert.equal((await leader.end()).code, 0);
  assert.equal((await standby.end()).code, 0);
});

it("waits for a table that a process of another cluster has, and says so once", async () => {
  const first = await startProcess(same);
  await first.line("ready");
  const second = await startProcess({ config: { url: database.url, "pg_conf.name": "other" } });
  const waits = /^another manager has the table/;
  await second.line(waits);
  // It has done for that entry what can be done.
  await second.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  assert.equal((await first.end()).code, 0);
  await second.line("manager works");
  assert.equal(second.said(waits).length, 1);
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  assert.equal((await second.end()).code, 0);
});

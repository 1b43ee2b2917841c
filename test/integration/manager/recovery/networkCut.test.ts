import assert from "node:assert/strict";
import { connectTo } from "../../../support/connectTo.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { startPgTask } from "../../../support/pgTask.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { only, insertTask, waitForRow, waitForRun, waitForState } from "../../../support/tasks.js";
import { TcpProxy } from "../../../support/tcpProxy.js";

const database = await createDatabase();
const client = await database.connect();
const proxy = await TcpProxy.start(database.target.port, database.target.host);
await client.query("CREATE TABLE effect (task bigint)");
const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)";
const url = `postgresql://${database.target.user}@127.0.0.1:${proxy.port}/${database.target.database}`;

/** Returns the number of the task's effects, that is, its rows in the table `effect`. */
async function effects(task: string): Promise<number> {
  const { rows } = await client.query("SELECT FROM effect WHERE task = $1", [task]);
  return rows.length;
}

/** Returns a connection that blocks all tasks that take this lock, until it ends. */
async function closeGate(lock: number): Promise<Client> {
  const gate = await connectTo(database.url);
  await gate.query("SELECT pg_advisory_lock($1)", [lock]);
  return gate;
}

/** Waits until a statement of these backends waits for the gate. */
const blocked = (condition: string): Promise<unknown> =>
  waitForRow(client, `SELECT FROM pg_stat_activity WHERE ${condition} AND wait_event = 'advisory'`);

/** Inserts a task that runs on this server over a connection of this name through the proxy, and waits until it runs. */
async function insertRemote(name: string, input: string): Promise<string> {
  const { user, database: dbname } = database.target;
  const remote = `host=127.0.0.1 port=${proxy.port} user=${user} dbname=${dbname} sslmode=disable application_name=${name}`;
  const { rows } = await client.query<{ id: string }>("INSERT INTO task (input, remote) VALUES ($1, $2) RETURNING id", [
    input,
    remote,
  ]);
  const { id } = only(rows);
  await waitForRun(client, id);
  return id;
}

async function runOne(group: string): Promise<void> {
  await waitForState(client, await insertTask(client, "SELECT 1", { group }), "DONE");
}

test("a half-open connection of the manager is detected and replaced", async (t) => {
  const pgTask = await startPgTask({ url });
  await runOne("before");
  const before = performance.now();
  assert.equal(proxy.freeze("pg_work"), 1);
  const id = await insertTask(client, `${effect}; SELECT 'after'`);
  assert.match((await waitForState(client, id, "DONE")).output ?? "", /after$/);
  t.diagnostic(`the manager's connection cut: ${Math.round(performance.now() - before)} ms`);
  await pgTask.line("serving table", 2);
  assert.equal(await effects(id), 1);
});

test("a half-open connection of the supervisor is detected, and it leads again", async (t) => {
  const pgTask = await startPgTask({ url });
  const before = performance.now();
  assert.equal(proxy.freeze("pg_conf"), 1);
  await pgTask.line("leadership regained");
  t.diagnostic(`the supervisor's connection cut: ${Math.round(performance.now() - before)} ms`);
  await runOne("supervisor");
});

test("a task that ran in a session that was cut off ends without blame", async (t) => {
  const pgTask = await startPgTask({ url, "pg_task.crash": 1 });
  const gate = await closeGate(1);
  const id = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`);
  const first = await waitForRun(client, id);
  await blocked(`pid = ${first.pid}`);
  const before = performance.now();
  assert.equal(proxy.freeze("pg_task"), 1);
  await gate.end();
  const row = await waitForState(client, id, "DONE");
  t.diagnostic(`a session's connection cut: ${Math.round(performance.now() - before)} ms`);
  assert.equal(row.crash, 0);
  assert.equal(await effects(id), 1);
  assert.equal(pgTask.linesMatching("session connection is half-open").length, 1);
  await runOne("session");
});

test("a session that was cut off while the server was sending ends without blame", async (t) => {
  const pgTask = await startPgTask({ url, "pg_task.crash": 1 });
  const gate = await closeGate(5);
  const id = await insertTask(
    client,
    `SELECT pg_advisory_xact_lock_shared(5); ${effect}; SELECT repeat('x', 20000000)`,
    { group: "sending" },
  );
  const first = await waitForRun(client, id);
  await blocked(`pid = ${first.pid}`);
  const before = performance.now();
  assert.equal(proxy.freeze("pg_task", { blocks: true }), 1);
  await gate.end();
  await waitForRow(client, "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'ClientWrite'", [first.pid]);
  const row = await waitForState(client, id, "DONE");
  t.diagnostic(`a session's connection cut while the server sends: ${Math.round(performance.now() - before)} ms`);
  assert.equal(row.crash, 0);
  assert.equal(await effects(id), 1);
  assert.equal(pgTask.linesMatching("session connection is half-open").length, 1);
});

test("a task dispatched to a session that was cut off runs in another without blame", async () => {
  const pgTask = await startPgTask({ url, "pg_task.crash": 1 });
  await runOne("warm");
  assert.equal(proxy.freeze("pg_task"), 1);
  const id = await insertTask(client, effect, { group: "warm" });
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  assert.equal(await effects(id), 1);
  assert.equal(pgTask.linesMatching("session connection is half-open").length, 1);
});

test("a remote task whose connection is cut runs again once its server has ended the run", async (t) => {
  const pgTask = await startPgTask({ url });
  const gate = await closeGate(3);
  const id = await insertRemote("elsewhere", "SELECT pg_advisory_lock_shared(3); SELECT 'there'");
  await blocked("application_name = 'elsewhere'");
  const before = performance.now();
  assert.ok(proxy.freeze("elsewhere") >= 1);
  await gate.end();
  const row = await waitForState(client, id, "DONE");
  t.diagnostic(`a remote task's connection cut: ${Math.round(performance.now() - before)} ms`);
  assert.match(row.output ?? "", /there$/);
  assert.equal(pgTask.linesMatching("remote task lost its connection").length, 1);
});

test("a remote task whose connection is cut while its server sends runs again", async (t) => {
  const pgTask = await startPgTask({ url });
  const gate = await closeGate(6);
  const id = await insertRemote("sender", "SELECT pg_advisory_xact_lock_shared(6); SELECT repeat('x', 20000000)");
  await blocked("application_name = 'sender'");
  const before = performance.now();
  assert.ok(proxy.freeze("sender", { blocks: true }) >= 1);
  await gate.end();
  await waitForState(client, id, "DONE");
  t.diagnostic(`a remote task's connection cut while its server sends: ${Math.round(performance.now() - before)} ms`);
  assert.equal(pgTask.linesMatching("remote task lost its connection").length, 1);
});

test("a remote task whose connection is cut ends when it is stopped, whose answer does not arrive either", async () => {
  await startPgTask({ url });
  const gate = await closeGate(7);
  const id = await insertRemote("stopped", `${effect}; SELECT pg_advisory_lock_shared(7)`);
  await blocked("application_name = 'stopped'");
  assert.ok(proxy.freeze("stopped") >= 1);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'STOP' AND owner IS NULL", [id]);
  assert.equal(await effects(id), 0);
  await gate.end();
});

test("a remote task that is silent for long is left alone while it runs", async () => {
  const pgTask = await startPgTask({ url });
  const gate = await closeGate(4);
  const id = await insertRemote("quiet", `SELECT pg_advisory_lock_shared(4); ${effect}`);
  // One connection belongs to the run, and two were opened to ask the server about the run.
  await proxy.connected("quiet", 3);
  await gate.end();
  await waitForState(client, id, "DONE");
  assert.equal(await effects(id), 1);
  assert.equal(pgTask.linesMatching("remote task lost its connection").length, 0);
});

test("work goes on after all connections were cut at once", async (t) => {
  await startPgTask({ url });
  const gate = await closeGate(2);
  const id = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(2); ${effect}`, { group: "all" });
  await waitForRun(client, id);
  const before = performance.now();
  assert.ok(proxy.freeze("pg_") >= 3);
  await gate.end();
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  t.diagnostic(`all connections cut: ${Math.round(performance.now() - before)} ms`);
  assert.equal(await effects(id), 1);
  await runOne("all");
});

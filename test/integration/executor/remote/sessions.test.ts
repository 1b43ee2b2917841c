import assert from "node:assert/strict";
import { connect as connectSocket, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Run } from "../../../../src/shared/ipc/run.js";
import { serverTarget } from "../../../support/database.js";
import type { ExecutorDriver } from "../../../support/executorDriver.js";
import { startRawServer } from "../../../support/listen.js";
import { startRemoteDriver } from "../../../support/remoteDriver.js";

const { admin, openDriver, remoteString, server } = await startRemoteDriver();

/** Runs a task with `count` in session 1, so that the remote session is kept. Returns the output. */
async function runKept(driver: ExecutorDriver, input: string, options: Partial<Run> = {}): Promise<string | null> {
  const { output, error } = await driver.run(1, input, {
    remote: remoteString,
    dedicated: true,
    ...options,
  });
  assert.equal(error, null);
  return output;
}

const pid = "SELECT pg_backend_pid()";

/** Waits until the second server has no backend with this pid. */
async function waitUntilGone(process: string | null): Promise<void> {
  const alive = "SELECT FROM pg_stat_activity WHERE pid = $1";
  while ((await server.admin.query(alive, [process])).rowCount !== 0) await pause(5);
}

for (const [what, other] of [
  ["another group", { group: "another" }],
  ["another string", { remote: `${remoteString} application_name=another` }],
] as const) {
  test(`a kept session is closed for a task of ${what}`, async () => {
    const driver = await openDriver();
    const first = await runKept(driver, pid);
    const second = await runKept(driver, pid, other);
    assert.notEqual(second, first);
    await waitUntilGone(first);
    assert.notEqual(await runKept(driver, pid), first);
    await waitUntilGone(second);
    await driver.executor.stop();
  });
}

test("a kept session ends with the local session", async () => {
  const driver = await openDriver();
  const first = await runKept(driver, pid);
  driver.executor.receive({ type: "close", sessions: [1] });
  await driver.message("closed");
  await waitUntilGone(first);
  await driver.open(2);
  const run = driver.dispatch(2, pid, { remote: remoteString, dedicated: true });
  const result = await driver.result(run.id);
  const second = result.outcome === "ended" ? result.output : null;
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(2).pid]);
  await driver.message("lost");
  await waitUntilGone(second);
});

test("a kept session that was lost is replaced without failing a task", async () => {
  const driver = await openDriver();
  for (const known of [true, false]) {
    const first = await runKept(driver, pid);
    await server.admin.query("SELECT pg_terminate_backend($1)", [first]);
    // If the test did not wait, the next run might be sent before the loss is noticed. The second round tests that
    // case.
    if (known) await waitUntilGone(first);
    assert.notEqual(await runKept(driver, pid), first);
  }
  assert.ok(!driver.messages.some(({ type }) => type === "lost"));
});

test("a kept session whose connection is half-open is replaced", async () => {
  const driver = await openDriver();
  const connections: Socket[] = [];
  const port = await startRawServer((socket) => {
    const there = connectSocket(server.port, "127.0.0.1");
    there.on("error", () => {});
    connections.push(there);
    socket.pipe(there).pipe(socket);
  });
  const remote = `${remoteString} port=${port}`;
  const first = await runKept(driver, pid, { remote });
  connections[0]?.unpipe();
  assert.notEqual(await runKept(driver, pid, { remote }), first);
});

test("a kept session is reset between two tasks", async () => {
  const driver = await openDriver();
  const leave =
    "CREATE TEMP TABLE trace (); SET work_mem = '12345kB'; SELECT pg_advisory_lock(9); SET client_connection_check_interval = 0";
  const first = await runKept(driver, pid);
  await runKept(driver, leave);
  const look = `SELECT concat_ws(' ', to_regclass('pg_temp.trace'), current_setting('work_mem'),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    current_setting('client_connection_check_interval'), current_setting('application_name'), pg_backend_pid())`;
  assert.equal(await runKept(driver, look), `4MB 0 200ms pg_task public task group ${first}`);
});

test("a session with state that no reset removes is not kept", async () => {
  const driver = await openDriver();
  const first = await runKept(driver, `SET my.own = 'x'; ${pid}`);
  assert.notEqual(await runKept(driver, pid), first);
});

test("a session is kept after a task that failed or timed out", async () => {
  const driver = await openDriver();
  const first = await runKept(driver, pid);
  const failing = { remote: remoteString, dedicated: true };
  assert.match((await driver.run(1, "SELECT 1/0", failing)).error ?? "", /division by zero/);
  assert.equal(await runKept(driver, pid), first);
  const late = { ...failing, timeoutMs: 200 };
  // The input disables the server's timeout, so the executor cancels the run.
  const endless = "SET statement_timeout = 0; SELECT pg_sleep(600)";
  assert.match((await driver.run(1, endless, late)).error ?? "", /statement timeout/);
  for (let round = 0; round < 20; round += 1) assert.equal(await runKept(driver, pid), first);
});

test("a kept session is replaced when its role's or database's settings have changed", async () => {
  const driver = await openDriver();
  const first = await runKept(driver, pid);
  await server.admin.query("ALTER ROLE postgres IN DATABASE postgres SET work_mem = '7MB'");
  assert.equal(await runKept(driver, "SHOW work_mem"), "7MB");
  const second = await runKept(driver, pid);
  assert.notEqual(second, first);
  await server.admin.query("ALTER ROLE postgres IN DATABASE postgres RESET work_mem");
  assert.equal(await runKept(driver, "SHOW work_mem"), "4MB");
});

test("a kept session is replaced when it no longer has the wanted target_session_attrs", async () => {
  const driver = await openDriver();
  await server.admin.query("CREATE DATABASE switching");
  const remote = `${remoteString} dbname=switching target_session_attrs=read-write`;
  const first = await runKept(driver, pid, { remote });
  assert.equal(await runKept(driver, pid, { remote }), first);
  await server.admin.query("ALTER DATABASE switching SET default_transaction_read_only = on");
  const { error } = await driver.run(1, pid, { remote, dedicated: true });
  assert.match(error ?? "", /session is read-only/);
  await waitUntilGone(first);
});

test("stopping the executor closes a kept session", async () => {
  const driver = await openDriver();
  const first = await runKept(driver, pid);
  await driver.executor.stop();
  await waitUntilGone(first);
});

test("a connection to the manager's server needs a permit", async () => {
  const driver = await openDriver();
  const permitRequests = () => driver.messages.filter(({ type }) => type === "requestConnectionPermit").length;
  const managerServer = "connect_timeout=9";
  const first = await runKept(driver, pid, { remote: managerServer });
  const used = await driver.message("connectionPermitUsed");
  assert.deepEqual([permitRequests(), used.opened], [1, true]);
  // A kept session needs no permit.
  driver.hasConnectionCapacity = false;
  assert.equal(await runKept(driver, pid, { remote: managerServer }), first);
  assert.equal(permitRequests(), 1);
  const run = driver.dispatch(1, pid, { remote: `${managerServer} ` });
  const expected = { outcome: "released", session: 1, id: run.id, serverFull: true };
  assert.deepEqual(await driver.result(run.id), expected);
  // The local session continues, and other servers can still be connected to.
  assert.notEqual(await runKept(driver, pid), first);
  assert.equal((await driver.run(1, "SELECT 1")).output, "1");
});

test("the manager's server is recognized behind another address once it was connected to", async () => {
  const driver = await openDriver();
  const { host, port } = serverTarget();
  const alias = await startRawServer((socket) => {
    const there = connectSocket(port, host);
    there.on("error", () => {});
    socket.pipe(there).pipe(socket);
  });
  const remote = `host=127.0.0.1 port=${alias}`;
  driver.hasConnectionCapacity = false;
  assert.notEqual(await runKept(driver, pid, { remote, dedicated: false }), null);
  const run = driver.dispatch(1, pid, { remote });
  assert.equal((await driver.result(run.id)).outcome, "released");
});

test("a silent run continues when there is no permit to ask its server", async () => {
  const driver = await openDriver();
  const run = driver.dispatch(1, "SELECT pg_sleep(2.5), 'slept'", { remote: "connect_timeout=9" });
  await driver.message("connectionPermitUsed");
  driver.hasConnectionCapacity = false;
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.error, null);
  assert.ok(driver.messages.filter(({ type }) => type === "requestConnectionPermit").length > 1);
});

test("a run stopped while it waits for a permit does not run", async () => {
  const driver = await openDriver();
  const { executor } = driver;
  const receive = executor.receive.bind(executor);
  const requested = new Promise<number>((resolve) => {
    executor.receive = (message) => (message.type === "connectionPermit" ? resolve(message.number) : receive(message));
  });
  const run = driver.dispatch(1, pid, { remote: "connect_timeout=9" });
  const number = await requested;
  driver.executor.receive({ type: "cancel", session: 1, id: run.id });
  const result = await driver.result(run.id);
  assert.match((result.outcome === "ended" && result.error) || "", /user request/);
  receive({ type: "connectionPermit", number, granted: true });
  assert.equal((await driver.message("connectionPermitUsed")).opened, false);
});

test("a run that fails to connect and loses its local session is released", async () => {
  const driver = await openDriver();
  const ends: Promise<unknown>[] = [];
  const port = await startRawServer((socket) => {
    socket.once("data", () => {
      const end = admin.query("SELECT pg_terminate_backend($1)", [driver.backend(1).pid]);
      ends.push(end.then(() => socket.destroy()));
    });
  });
  const run = driver.dispatch(1, pid, { remote: `${remoteString} port=${port}` });
  const result = await driver.result(run.id);
  assert.deepEqual(result, { outcome: "released", session: 1, id: run.id });
  await driver.message("lost");
  await Promise.all(ends);
});

test("a session that is closed right after its first remote task was dispatched runs the task first", async () => {
  const driver = await openDriver();
  const run = driver.dispatch(1, "SELECT 1", { remote: remoteString });
  driver.executor.receive({ type: "close", sessions: [1] });
  await driver.message("closed");
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" ? result.output : null, "1");
});

test("a session's first remote task that is cancelled right after its dispatch is released", async () => {
  const driver = await openDriver();
  const run = driver.dispatch(1, "SELECT pg_sleep(600)", { remote: remoteString });
  driver.executor.receive({ type: "cancel", session: 1, id: run.id });
  assert.equal((await driver.result(run.id)).outcome, "released");
  assert.equal((await driver.run(1, "SELECT 2", { remote: remoteString })).output, "2");
});

import assert from "node:assert/strict";
import { connect as connectSocket, type Socket } from "node:net";
import { test } from "node:test";
import type { Run } from "../../../../src/shared/ipc/messages.js";
import { serverTarget } from "../../../support/database.js";
import type { ExecutorDriver } from "../../../support/executorDriver.js";
import { admin, openDriver, place, server, startStranger } from "../../../support/remoteDriver.js";

/** Runs something in session 1 as a task with count. */
async function kept(
  driver: ExecutorDriver,
  input: string,
  options: Partial<Run> = {},
): Promise<string | null> {
  const { output, error } = await driver.run(1, input, { remote: place, keep: true, ...options });
  assert.equal(error, null);
  return output;
}

const pid = "SELECT pg_backend_pid()";

/** Resolves when the second server has no such process. */
async function gone(process: string | null): Promise<void> {
  const there = "SELECT FROM pg_stat_activity WHERE pid = $1";
  while ((await server.admin.query(there, [process])).rowCount !== 0);
}

test("a session there is kept for the next task of the same group and string", async () => {
  const driver = await openDriver();
  const first = await kept(driver, pid);
  assert.equal(await kept(driver, pid), first);
  assert.equal(await kept(driver, pid), first);
  await driver.executor.stop();
});

for (const [what, other] of [
  ["another group", { group: "another" }],
  ["another string", { remote: `${place} application_name=another` }],
] as const) {
  test(`what is kept is not used by a task of ${what}, and ends`, async () => {
    const driver = await openDriver();
    const first = await kept(driver, pid);
    const second = await kept(driver, pid, other);
    assert.notEqual(second, first);
    await gone(first);
    assert.notEqual(await kept(driver, pid), first);
    await gone(second);
    await driver.executor.stop();
  });
}

test("a task that keeps no session ends the one it runs in", async () => {
  const driver = await openDriver();
  const alone = await kept(driver, pid, { keep: false });
  await gone(alone);
  assert.notEqual(await kept(driver, pid), alone);
  await driver.executor.stop();
});

test("what is kept ends with the session here", async () => {
  const driver = await openDriver();
  const first = await kept(driver, pid);
  driver.executor.close([1]);
  await driver.heard("closed");
  await gone(first);
  await driver.open(2);
  const run = driver.make(2, pid, { remote: place, keep: true });
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  const second = result.outcome === "ended" ? result.output : null;
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(2).pid]);
  await driver.heard("lost");
  await gone(second);
  await driver.executor.stop();
});

test("a session that is lost between two tasks is replaced, and no task fails", async () => {
  const driver = await openDriver();
  for (const known of [true, false]) {
    const first = await kept(driver, pid);
    await server.admin.query("SELECT pg_terminate_backend($1)", [first]);
    // Or the next one may be on its way while the end is.
    if (known) await gone(first);
    assert.notEqual(await kept(driver, pid), first);
  }
  assert.ok(!driver.messages.some(({ type }) => type === "lost"));
  await driver.executor.stop();
});

test("a session that the network has swallowed between two tasks is replaced", async () => {
  const driver = await openDriver();
  const connections: Socket[] = [];
  const port = await startStranger((socket) => {
    const there = connectSocket(server.port, "127.0.0.1");
    there.on("error", () => {});
    connections.push(there);
    socket.pipe(there).pipe(socket);
  });
  const remote = `${place} port=${port}`;
  const first = await kept(driver, pid, { remote });
  connections[0]?.unpipe();
  assert.notEqual(await kept(driver, pid, { remote }), first);
  await driver.executor.stop();
});

test("between two tasks a session is as a new one", async () => {
  const driver = await openDriver();
  const leave =
    "CREATE TEMP TABLE trace (); SET work_mem = '12345kB'; SELECT pg_advisory_lock(9); SET client_connection_check_interval = 0";
  const first = await kept(driver, pid);
  await kept(driver, leave);
  const look = `SELECT concat_ws(' ', to_regclass('pg_temp.trace'), current_setting('work_mem'),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    current_setting('client_connection_check_interval'), current_setting('application_name'), pg_backend_pid())`;
  assert.equal(await kept(driver, look), `4MB 0 200ms pg_task public task group ${first}`);
  await driver.executor.stop();
});

test("a session in which something is left that no reset takes away is not kept", async () => {
  const driver = await openDriver();
  const first = await kept(driver, `SET my.own = 'x'; ${pid}`);
  assert.notEqual(await kept(driver, pid), first);
  await driver.executor.stop();
});

test("with save the next task finds what the one before it has left", async () => {
  const driver = await openDriver();
  await kept(driver, "CREATE TEMP TABLE trace AS SELECT 'a' AS value; SET work_mem = '12345kB'", {
    save: true,
  });
  const look = "SELECT value, current_setting('work_mem') FROM trace";
  assert.equal(
    await kept(driver, look, { save: true, timeoutMs: 60_000 }),
    "value\tcurrent_setting\na\t12345kB",
  );
  assert.equal(await kept(driver, "SHOW statement_timeout", { save: true }), "0");
  // Reset behind this one.
  await kept(driver, look);
  assert.equal(await kept(driver, "SELECT to_regclass('pg_temp.trace') IS NULL"), "t");
  await driver.executor.stop();
});

test("a task that fails, or runs out of time, leaves the session to the next", async () => {
  const driver = await openDriver();
  const first = await kept(driver, pid);
  const failing = { remote: place, keep: true };
  assert.match((await driver.run(1, "SELECT 1/0", failing)).error ?? "", /division by zero/);
  assert.equal(await kept(driver, pid), first);
  const late = { ...failing, timeoutMs: 200 };
  // Its own clock is cancelled from here.
  const endless = "SET statement_timeout = 0; SELECT pg_sleep(600)";
  assert.match((await driver.run(1, endless, late)).error ?? "", /statement timeout/);
  for (let round = 0; round < 20; round += 1) assert.equal(await kept(driver, pid), first);
  await driver.executor.stop();
});

test("a session whose role's or database's settings have changed since is replaced", async () => {
  const driver = await openDriver();
  const first = await kept(driver, pid);
  await server.admin.query("ALTER ROLE postgres IN DATABASE postgres SET work_mem = '7MB'");
  assert.equal(await kept(driver, "SHOW work_mem"), "7MB");
  const second = await kept(driver, pid);
  assert.notEqual(second, first);
  await server.admin.query("ALTER ROLE postgres IN DATABASE postgres RESET work_mem");
  assert.equal(await kept(driver, "SHOW work_mem"), "4MB");
  await driver.executor.stop();
});

test("a session is found out to be of the wrong kind by then", async () => {
  const driver = await openDriver();
  await server.admin.query("CREATE DATABASE turning");
  const remote = `${place} dbname=turning target_session_attrs=read-write`;
  const first = await kept(driver, pid, { remote });
  assert.equal(await kept(driver, pid, { remote }), first);
  await server.admin.query("ALTER DATABASE turning SET default_transaction_read_only = on");
  const { error } = await driver.run(1, pid, { remote, keep: true });
  assert.match(error ?? "", /session is read-only/);
  await gone(first);
  await driver.executor.stop();
});

test("a stop while a session is kept ends it", async () => {
  const driver = await openDriver();
  const first = await kept(driver, pid);
  await driver.executor.stop();
  await gone(first);
});

test("a connection to the manager's own server is opened where there is room", async () => {
  const driver = await openDriver();
  const asked = () => driver.messages.filter(({ type }) => type === "room").length;
  const own = "connect_timeout=9";
  const first = await kept(driver, pid, { remote: own });
  const entered = await driver.heard("entered");
  assert.deepEqual([asked(), entered.open], [1, true]);
  // One that is kept is open already.
  driver.hasRoom = false;
  assert.equal(await kept(driver, pid, { remote: own }), first);
  assert.equal(asked(), 1);
  const run = driver.make(1, pid, { remote: `${own} ` });
  driver.executor.dispatch([run]);
  const expected = { outcome: "returned", session: 1, id: run.id, crowded: true };
  assert.deepEqual(await driver.result(run.id), expected);
  // The session goes on, and so do connections to others.
  assert.notEqual(await kept(driver, pid), first);
  assert.equal((await driver.run(1, "SELECT 1")).output, "1");
  await driver.executor.stop();
});

test("the manager's own server is known behind another address when somebody has been there", async () => {
  const driver = await openDriver();
  const { host, port } = serverTarget();
  const alias = await startStranger((socket) => {
    const there = connectSocket(port, host);
    there.on("error", () => {});
    socket.pipe(there).pipe(socket);
  });
  const remote = `host=127.0.0.1 port=${alias}`;
  driver.hasRoom = false;
  assert.notEqual(await kept(driver, pid, { remote, keep: false }), null);
  const run = driver.make(1, pid, { remote });
  driver.executor.dispatch([run]);
  assert.equal((await driver.result(run.id)).outcome, "returned");
  await driver.executor.stop();
});

test("a run that says nothing goes on where there is no room to ask its server", async () => {
  const driver = await openDriver();
  const run = driver.make(1, "SELECT pg_sleep(2.5), 'slept'", { remote: "connect_timeout=9" });
  driver.executor.dispatch([run]);
  await driver.heard("entered");
  driver.hasRoom = false;
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.error, null);
  assert.ok(driver.messages.filter(({ type }) => type === "room").length > 1);
  await driver.executor.stop();
});

test("a run that is stopped while it waits for room is not run", async () => {
  const driver = await openDriver();
  const answer = driver.executor.room.bind(driver.executor);
  const asked = new Promise<number>((resolve) => {
    driver.executor.room = ({ number }) => resolve(number);
  });
  const run = driver.make(1, pid, { remote: "connect_timeout=9" });
  driver.executor.dispatch([run]);
  const number = await asked;
  driver.executor.cancel(1, run.id);
  const result = await driver.result(run.id);
  assert.match((result.outcome === "ended" && result.error) || "", /user request/);
  answer({ type: "room", number, room: true });
  assert.equal((await driver.heard("entered")).open, false);
  await driver.executor.stop();
});

test("a task that does not get to its server, and whose session here is lost, is returned", async () => {
  const driver = await openDriver();
  const ends: Promise<unknown>[] = [];
  const port = await startStranger((socket) => {
    socket.once("data", () => {
      const end = admin.query("SELECT pg_terminate_backend($1)", [driver.backend(1).pid]);
      ends.push(end.then(() => socket.destroy()));
    });
  });
  const run = driver.make(1, pid, { remote: `${place} port=${port}` });
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  assert.deepEqual(result, { outcome: "returned", session: 1, id: run.id });
  await driver.heard("lost");
  await Promise.all(ends);
  await driver.executor.stop();
});

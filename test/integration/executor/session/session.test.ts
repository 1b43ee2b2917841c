import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
await admin.query("CREATE TABLE effect (what text)");

const create = (): ExecutorDriver => new ExecutorDriver(database.target, admin);

/** Whether there is a backend with this pid. */
async function isAlive(pid: number): Promise<boolean> {
  const { rowCount } = await admin.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid]);
  return rowCount === 1;
}

const typesOf = (driver: ExecutorDriver): string[] => driver.messages.map(({ type }) => type);

test("an opened session reports its backend's pid and start", async () => {
  const driver = create();
  const { pid, owner } = await driver.open(3);
  const { rows } = await admin.query<{ owner: string }>(
    `SELECT pid || ' ' || to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS owner ` +
      "FROM pg_stat_activity WHERE pid = $1",
    [pid],
  );
  assert.deepEqual(rows, [{ owner }]);
});

test("the session's keepalive settings override the role's", async () => {
  const role = `watch_${database.target.database}`;
  const expected = new Map([
    ["client_connection_check_interval", "200"],
    ["client_encoding", "UTF8"],
    ["idle_session_timeout", "0"],
    ["tcp_user_timeout", "0"],
  ]);
  const { rows } = await admin.query<{ name: string }>(
    "SELECT name FROM pg_settings WHERE name = ANY ($1) ORDER BY name",
    [[...expected.keys()]],
  );
  const known = rows.map(({ name }) => name);
  await admin.query(`CREATE ROLE ${role} LOGIN; ALTER ROLE ${role} SET client_encoding = 'LATIN1'`);
  for (const name of known.filter((other) => other !== "client_encoding")) {
    await admin.query(`ALTER ROLE ${role} SET ${name} = 12345`);
  }
  try {
    const driver = new ExecutorDriver({ ...database.target, user: role }, admin);
    await driver.open(1);
    const look = known.map((name) => `SELECT setting FROM pg_settings WHERE name = '${name}'`);
    for (let round = 0; round < 2; round++) {
      const { output } = await driver.run(1, look.join(";"));
      assert.equal(output, known.map((name) => expected.get(name)).join("\n"));
    }
    await driver.executor.stop();
  } finally {
    await admin.query(`DROP ROLE ${role}`);
  }
});

test("a session that fails to open reports why and releases its runs", async () => {
  const driver = new ExecutorDriver({ ...database.target, database: "no such one" }, admin);
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  driver.executor.dispatch([driver.makeRun(1, "SELECT 1", { id: "9" })]);
  const { reason } = await driver.message("openFailed");
  assert.equal(reason.code, "CONNECTION_REJECTED");
  assert.match(reason.message, /database "no such one" does not exist/);
  assert.deepEqual(driver.results(), [{ outcome: "released", session: 1, id: "9" }]);
});

test("a run dispatched while its session opens runs afterwards", async () => {
  const driver = create();
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  const { output } = await driver.run(1, "SELECT 1");
  assert.equal(output, "1");
});

test("sessions run in parallel, and a slow one delays no other", async () => {
  const driver = create();
  await Promise.all([driver.open(1), driver.open(2)]);
  const slow = driver.makeRun(1, "SELECT FROM pg_advisory_lock(21)");
  await admin.query("SELECT pg_advisory_lock(21)");
  driver.executor.dispatch([slow, driver.makeRun(2, "SELECT 2", { id: "fast" })]);
  await driver.result("fast");
  assert.equal(driver.results().length, 1);
  await admin.query("SELECT pg_advisory_unlock(21)");
  assert.equal((await driver.result(slow.id)).outcome, "ended");
});

test("results of one event loop iteration are sent together", async () => {
  const driver = create();
  driver.executor.dispatch([driver.makeRun(1, ""), driver.makeRun(2, ""), driver.makeRun(3, "")]);
  await driver.message("results");
  assert.deepEqual(
    driver.messages.map((message) => (message.type === "results" ? message.results.length : message)),
    [3],
  );
});

test("a task that terminates its backend loses the session with the server's reason, without a result", async () => {
  const driver = create();
  await driver.open(1);
  driver.executor.dispatch([driver.makeRun(1, "SELECT pg_terminate_backend(pg_backend_pid())")]);
  const { reason } = await driver.message("lost");
  assert.equal(reason.code, "CONNECTION_LOST");
  assert.match(reason.message, /terminating connection due to administrator command/);
  assert.deepEqual(driver.results(), []);
});

test("a lost session accepts no more runs, and its number can be reused", async () => {
  const driver = create();
  const first = await driver.open(1);
  await admin.query("SELECT pg_terminate_backend($1)", [first.pid]);
  await driver.message("lost");
  const late = driver.dispatch(1, "SELECT 1");
  assert.deepEqual(await driver.result(late.id), { outcome: "released", session: 1, id: late.id });
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  await driver.message("opened", ({ backend }) => backend.pid !== first.pid);
  assert.equal((await driver.run(1, "SELECT 1")).output, "1");
});

test("the result of a run is reported before the loss of its session", async () => {
  const driver = create();
  const { pid } = await driver.open(1);
  driver.onCancel = () => {};
  await admin.query("SELECT pg_advisory_lock(22)");
  const input =
    "SELECT FROM pg_advisory_lock(22); SELECT FROM pg_advisory_unlock(22); INSERT INTO effect VALUES ('known')";
  const run = driver.dispatch(1, input);
  await driver.untilRunning(1, "pg_advisory_lock");
  driver.executor.receive({ type: "abort" });
  await admin.query("SELECT pg_advisory_unlock(22)");
  await driver.untilIdle(1, "COMMIT");
  await admin.query("SELECT pg_terminate_backend($1)", [pid]);
  await driver.message("lost");
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.equal(result.error, null);
  assert.deepEqual(typesOf(driver), ["opened", "requestCancel", "results", "lost"]);
});

test("a closed session's backend is gone", async () => {
  const driver = create();
  const { pid } = await driver.open(1);
  driver.executor.receive({ type: "close", sessions: [1] });
  await driver.message("closed");
  while (await isAlive(pid)) await pause(5);
  assert.deepEqual(typesOf(driver), ["opened", "closed"]);
});

test("a session closed during a run finishes its runs and accepts no more", async () => {
  const driver = create();
  await driver.open(1);
  const runs = [driver.makeRun(1, "SELECT pg_sleep(0.01)"), driver.makeRun(1, "SELECT 2")];
  driver.executor.dispatch(runs);
  driver.executor.receive({ type: "close", sessions: [1] });
  driver.executor.receive({ type: "close", sessions: [1] });
  const late = driver.dispatch(1, "SELECT 3");
  await driver.message("closed");
  const outcomes = new Map(driver.results().map(({ id, outcome }) => [id, outcome]));
  assert.deepEqual(
    [...runs, late].map(({ id }) => outcomes.get(id)),
    ["ended", "ended", "released"],
  );
  assert.equal(typesOf(driver).at(-1), "closed");
  assert.equal(driver.messages.filter(({ type }) => type === "closed").length, 1);
});

test("messages for unknown sessions and runs have no effect", async () => {
  const driver = create();
  driver.executor.receive({ type: "cancelAnswered", session: 1, id: "1" });
  driver.executor.receive({ type: "close", sessions: [1, 2] });
  driver.executor.receive({ type: "abort" });
  await driver.open(1);
  driver.executor.receive({ type: "cancelAnswered", session: 1, id: "77" });
  driver.executor.receive({ type: "abort" });
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  const { output } = await driver.run(1, "SELECT 1");
  driver.executor.receive({ type: "cancelAnswered", session: 1, id: "1" });
  assert.equal(output, "1");
  assert.deepEqual(typesOf(driver), ["opened", "results"]);
  assert.match(driver.lines.join(""), /session is already open/);
});

test("a stop closes idle sessions, loses busy ones and releases queued runs", async () => {
  const driver = create();
  await Promise.all([driver.open(1), driver.open(2)]);
  const waiting = driver.makeRun(2, "DO $$ BEGIN END $$");
  driver.executor.dispatch([driver.makeRun(2, "SELECT pg_sleep(600)"), waiting]);
  await driver.untilRunning(2, "pg_sleep");
  driver.executor.receive({ type: "open", sessions: [3], group: "group" });
  await Promise.all([driver.executor.stop(), driver.executor.stop()]);
  assert.deepEqual(driver.results(), [{ outcome: "released", session: 2, id: waiting.id }]);
  assert.equal((await driver.message("closed")).session, 1);
  assert.equal((await driver.message("lost")).session, 2);
  assert.equal((await driver.message("openFailed")).session, 3);
  // PostgreSQL before 14 does not check whether the client of a running query is gone, so the test ends the backend.
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(2).pid]);
});

test("a stopped executor opens no session and runs nothing", async () => {
  const driver = create();
  await driver.executor.stop();
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  const run = driver.dispatch(1, "SELECT 1");
  driver.executor.receive({ type: "abort" });
  driver.executor.receive({ type: "close", sessions: [1] });
  assert.equal((await driver.message("openFailed")).session, 1);
  assert.equal((await driver.result(run.id)).outcome, "released");
});

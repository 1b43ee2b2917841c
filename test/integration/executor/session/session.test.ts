import assert from "node:assert/strict";
import { test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
await admin.query("CREATE TABLE effect (what text)");

const create = (): ExecutorDriver => new ExecutorDriver(database.target, admin);

/** Whether there is a server process of this number. */
async function isAlive(pid: number): Promise<boolean> {
  const { rowCount } = await admin.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid]);
  return rowCount === 1;
}

const typesOf = (driver: ExecutorDriver): string[] => driver.messages.map(({ type }) => type);

test("an opened session tells its backend as the server knows it", async () => {
  const driver = create();
  const { pid, owner } = await driver.open(3);
  const { rows } = await admin.query<{ owner: string }>(
    `SELECT pid || ' ' || to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS owner ` +
      "FROM pg_stat_activity WHERE pid = $1",
    [pid],
  );
  assert.deepEqual(rows, [{ owner }]);
  await driver.executor.stop();
});

test("the server watches over the session's connection, whatever the role's own settings are", async () => {
  const role = `watch_${database.target.database}`;
  const expected = new Map([
    ["client_connection_check_interval", "200"],
    ["client_encoding", "UTF8"],
    ["idle_session_timeout", "0"],
    ["tcp_user_timeout", "10000"],
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

test("a session that cannot be opened says why, and returns what was given to it", async () => {
  const driver = new ExecutorDriver({ ...database.target, database: "no such one" }, admin);
  driver.executor.open([1], "group");
  driver.executor.dispatch([driver.make(1, "SELECT 1", { id: "9" })]);
  const { reason } = await driver.heard("unopened");
  assert.equal(reason.code, "CONNECTION_REJECTED");
  assert.match(reason.message, /database "no such one" does not exist/);
  assert.deepEqual(driver.results(), [{ outcome: "returned", session: 1, id: "9" }]);
});

test("a run given while its session is being opened runs then", async () => {
  const driver = create();
  driver.executor.open([1], "group");
  const { output } = await driver.run(1, "SELECT 1");
  assert.equal(output, "1");
  await driver.executor.stop();
});

test("sessions run beside each other, and a slow one holds up no other", async () => {
  const driver = create();
  await Promise.all([driver.open(1), driver.open(2)]);
  const slow = driver.make(1, "SELECT FROM pg_advisory_lock(21)");
  await admin.query("SELECT pg_advisory_lock(21)");
  driver.executor.dispatch([slow, driver.make(2, "SELECT 2", { id: "fast" })]);
  await driver.result("fast");
  assert.equal(driver.results().length, 1);
  await admin.query("SELECT pg_advisory_unlock(21)");
  assert.equal((await driver.result(slow.id)).outcome, "ended");
  await driver.executor.stop();
});

test("results of one turn come together", async () => {
  const driver = create();
  driver.executor.dispatch([driver.make(1, ""), driver.make(2, ""), driver.make(3, "")]);
  await driver.heard("results");
  assert.deepEqual(
    driver.messages.map((message) =>
      message.type === "results" ? message.results.length : message,
    ),
    [3],
  );
});

test("a task that ends its own backend is lost, with the server's reason, and is no result", async () => {
  const driver = create();
  await driver.open(1);
  driver.executor.dispatch([driver.make(1, "SELECT pg_terminate_backend(pg_backend_pid())")]);
  const { reason } = await driver.heard("lost");
  assert.equal(reason.code, "CONNECTION_LOST");
  assert.match(reason.message, /terminating connection due to administrator command/);
  assert.deepEqual(driver.results(), []);
});

test("a lost session takes nothing more, and its number can be opened anew", async () => {
  const driver = create();
  const first = await driver.open(1);
  await admin.query("SELECT pg_terminate_backend($1)", [first.pid]);
  await driver.heard("lost");
  const late = driver.make(1, "SELECT 1");
  driver.executor.dispatch([late]);
  assert.deepEqual(await driver.result(late.id), { outcome: "returned", session: 1, id: late.id });
  driver.executor.open([1], "group");
  await driver.heard("opened", ({ backend }) => backend.pid !== first.pid);
  assert.equal((await driver.run(1, "SELECT 1")).output, "1");
  await driver.executor.stop();
});

test("a run whose session is lost right after it is told before the loss", async () => {
  const driver = create();
  const { pid } = await driver.open(1);
  driver.onCancel = () => {};
  await admin.query("SELECT pg_advisory_lock(22)");
  const input =
    "SELECT FROM pg_advisory_lock(22); SELECT FROM pg_advisory_unlock(22); INSERT INTO effect VALUES ('known')";
  const run = driver.make(1, input);
  driver.executor.dispatch([run]);
  await driver.running(1, "pg_advisory_lock");
  driver.executor.abort();
  await admin.query("SELECT pg_advisory_unlock(22)");
  await driver.idle(1, "COMMIT");
  await admin.query("SELECT pg_terminate_backend($1)", [pid]);
  await driver.heard("lost");
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.equal(result.error, null);
  assert.deepEqual(typesOf(driver), ["opened", "cancel", "results", "lost"]);
});

test("a closed session's backend is gone", async () => {
  const driver = create();
  const { pid } = await driver.open(1);
  driver.executor.close([1]);
  await driver.heard("closed");
  while (await isAlive(pid));
  assert.deepEqual(typesOf(driver), ["opened", "closed"]);
});

test("a session closed while it works ends its work first, and takes no more", async () => {
  const driver = create();
  await driver.open(1);
  const runs = [driver.make(1, "SELECT pg_sleep(0.01)"), driver.make(1, "SELECT 2")];
  driver.executor.dispatch(runs);
  driver.executor.close([1]);
  driver.executor.close([1]);
  const late = driver.make(1, "SELECT 3");
  driver.executor.dispatch([late]);
  await driver.heard("closed");
  const outcomes = new Map(driver.results().map(({ id, outcome }) => [id, outcome]));
  assert.deepEqual(
    [...runs, late].map(({ id }) => outcomes.get(id)),
    ["ended", "ended", "returned"],
  );
  assert.equal(typesOf(driver).at(-1), "closed");
  assert.equal(driver.messages.filter(({ type }) => type === "closed").length, 1);
});

test("orders about sessions and runs that are not there change nothing", async () => {
  const driver = create();
  driver.executor.cancelled(1, "1");
  driver.executor.close([1, 2]);
  driver.executor.abort();
  await driver.open(1);
  driver.executor.cancelled(1, "77");
  driver.executor.abort();
  driver.executor.open([1], "group");
  const { output } = await driver.run(1, "SELECT 1");
  driver.executor.cancelled(1, "1");
  assert.equal(output, "1");
  assert.deepEqual(typesOf(driver), ["opened", "results"]);
  assert.match(driver.lines.join(""), /session to be opened is there already/);
  await driver.executor.stop();
});

test("a stop ends every session: idle ones are closed, a busy one is lost, what waits comes back", async () => {
  const driver = create();
  await Promise.all([driver.open(1), driver.open(2)]);
  const waiting = driver.make(2, "DO $$ BEGIN END $$");
  driver.executor.dispatch([driver.make(2, "SELECT pg_sleep(600)"), waiting]);
  await driver.running(2, "pg_sleep");
  driver.executor.open([3], "group");
  await Promise.all([driver.executor.stop(), driver.executor.stop()]);
  assert.deepEqual(driver.results(), [{ outcome: "returned", session: 2, id: waiting.id }]);
  assert.equal((await driver.heard("closed")).session, 1);
  assert.equal((await driver.heard("lost")).session, 2);
  assert.equal((await driver.heard("unopened")).session, 3);
  // A server before 14 does not look whether the client of a running query is still there.
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(2).pid]);
});

test("an executor that was stopped opens nothing and runs nothing", async () => {
  const driver = create();
  await driver.executor.stop();
  driver.executor.open([1], "group");
  const run = driver.make(1, "SELECT 1");
  driver.executor.dispatch([run]);
  driver.executor.abort();
  driver.executor.close([1]);
  assert.equal((await driver.heard("unopened")).session, 1);
  assert.equal((await driver.result(run.id)).outcome, "returned");
});

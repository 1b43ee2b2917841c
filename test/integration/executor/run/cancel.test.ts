import assert from "node:assert/strict";
import { test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
await admin.query("CREATE TABLE effect (what text)");

const timedOut = (input: string) => `ERROR:  canceling statement due to statement timeout\nSTATEMENT:  ${input}`;

/** Creates an executor with session 1 open. */
async function openDriver(outputLimit = 64 << 20): Promise<ExecutorDriver> {
  const driver = new ExecutorDriver(database.target, admin, { outputLimit });
  await driver.open(1);
  return driver;
}

test("the timeout covers all statements together, whatever they set themselves", async () => {
  const driver = await openDriver();
  const input =
    "SET statement_timeout = 0; SELECT pg_sleep(0.01); INSERT INTO effect VALUES ('late'); SELECT pg_sleep(600)";
  const { output, error } = await driver.run(1, input, { timeoutMs: 500 });
  assert.deepEqual([output, error], ["SET\n\nINSERT 0 1", timedOut(input)]);
  assert.equal((await admin.query("SELECT FROM effect")).rowCount, 0);
  assert.equal((await driver.message("requestCancel")).session, 1);
});

test("the timeout covers the commit of an open transaction", async () => {
  const driver = await openDriver();
  await driver.run(
    1,
    "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); END'; " +
      "CREATE TABLE slow (); CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED " +
      "FOR EACH ROW EXECUTE FUNCTION slow()",
  );
  const { error } = await driver.run(1, "BEGIN; INSERT INTO slow DEFAULT VALUES", {
    timeoutMs: 30,
  });
  assert.match(error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
  assert.equal((await driver.run(1, "SELECT count(*) FROM slow")).output, "0");
});

test("a timeout never affects the next run", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 50; round++) {
    const short = await driver.run(1, "SELECT pg_sleep(0.0007)", { timeoutMs: 1 });
    const long = await driver.run(1, "SELECT pg_sleep(0.004), current_setting('statement_timeout')");
    assert.equal(long.error, null);
    assert.match(long.output ?? "", /\t0$/);
    assert.match(short.stop ?? "", /Z$/);
  }
  assert.deepEqual(
    driver.messages.filter(({ type }) => type === "lost"),
    [],
  );
});

test("a timeout beyond the range of timers does not fire at once", async () => {
  const driver = await openDriver();
  const look = "SELECT pg_sleep(0.01), current_setting('statement_timeout')";
  const { output, error } = await driver.run(1, look, { timeoutMs: 1e15 });
  assert.deepEqual([output?.split("\t").at(-1), error], ["2147483647ms", null]);
});

test("the cancel is repeated if the SQL catches it", async () => {
  const driver = await openDriver();
  const input =
    "SET statement_timeout = 0; DO $$ BEGIN PERFORM pg_sleep(600); " +
    "EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(600); END $$";
  const { error } = await driver.run(1, input, { timeoutMs: 10 });
  assert.match(error ?? "", /^ERROR: {2}canceling statement due to statement timeout\nCONTEXT: {2}SQL/);
  assert.equal(driver.messages.filter(({ type }) => type === "requestCancel").length, 2);
});

test("a session starts no other run until the requested cancel has been sent", async () => {
  const driver = await openDriver();
  driver.onCancel = () => {};
  const slow = driver.makeRun(1, "SET statement_timeout = 0; SELECT pg_sleep(600)", {
    timeoutMs: 500,
  });
  const next = driver.makeRun(1, "SELECT 'next'");
  driver.executor.dispatch([slow, next]);
  await driver.message("requestCancel");
  const { pid } = driver.backend(1);
  await admin.query("SELECT pg_cancel_backend($1)", [pid]);
  // The backend's last query must be the one that reads the clock: while the cancel is pending, no reset is sent.
  await driver.untilIdle(1, "clock_timestamp");
  assert.deepEqual(driver.results(), []);
  await driver.cancel(1, slow.id);
  const results = [await driver.result(slow.id), await driver.result(next.id)];
  assert.deepEqual(
    results.map((result) => (result.outcome === "ended" ? [result.output, result.error] : [])),
    [
      ["SET", timedOut(slow.input)],
      ["next", null],
    ],
  );
});

test("a reset hit by a foreign cancel is repeated", async () => {
  const driver = await openDriver();
  const { pid } = driver.backend(1);
  const run = driver.makeRun(1, "CREATE TEMP TABLE held (); COMMIT; SELECT FROM pg_advisory_lock(23)");
  await admin.query("SELECT pg_advisory_lock(23)");
  driver.executor.dispatch([run]);
  await driver.untilBlocked(1, "pg_advisory_lock");
  const holder = await database.connect();
  const { rows } = await holder.query<{ name: string }>(
    "SELECT relnamespace::regnamespace || '.held' AS name FROM pg_class WHERE relname = 'held'",
  );
  await holder.query(`BEGIN; LOCK TABLE ${rows[0]?.name} IN ACCESS SHARE MODE`);
  await admin.query("SELECT pg_advisory_unlock(23)");
  await driver.untilBlocked(1, "DISCARD ALL");
  await admin.query("SELECT pg_cancel_backend($1)", [pid]);
  await driver.untilRunning(1, "DISCARD ALL");
  assert.deepEqual(driver.results(), []);
  await holder.query("COMMIT");
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.equal(result.error, null);
  assert.equal((await driver.run(1, "SELECT pg_backend_pid()")).output, String(pid));
});

test("a statement_timeout set by a task does not affect the session reset", async () => {
  const driver = await openDriver();
  const { pid } = driver.backend(1);
  const { error } = await driver.run(
    1,
    "DO $$ BEGIN FOR i IN 1..500 LOOP EXECUTE 'CREATE TEMP TABLE t' || i || ' ()'; END LOOP; END $$; " +
      "SET statement_timeout = 2",
  );
  assert.equal(error, null);
  assert.equal((await driver.run(1, "SELECT pg_backend_pid()")).output, String(pid));
});

test("foreign cancels never skip a session reset", async () => {
  const driver = await openDriver();
  const { pid } = driver.backend(1);
  const ended = new AbortController();
  const stranger = await database.connect();
  const cancelling = (async () => {
    while (!ended.signal.aborted) await stranger.query("SELECT pg_cancel_backend($1)", [pid]);
  })();
  const runs = Array.from({ length: 200 }, () =>
    driver.makeRun(1, "SET work_mem = '3MB'; SELECT FROM pg_advisory_lock(99); CREATE TEMP TABLE t ()"),
  );
  driver.executor.dispatch(runs);
  await Promise.race([Promise.all(runs.map(({ id }) => driver.result(id))), driver.message("lost")]);
  ended.abort();
  await cancelling;
  if (driver.messages.some(({ type }) => type === "lost")) await driver.open(1);
  const { output } = await driver.run(
    1,
    "SELECT current_setting('work_mem') = '3MB', to_regclass('pg_temp.t') IS NOT NULL, " +
      "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())",
  );
  assert.equal(output?.split("\n")[1], "f\tf\t0");
});

test("output up to the limit is kept; one byte more is an error", async () => {
  const driver = await openDriver(10);
  const fits = await driver.run(1, "SELECT 'ääää'; SELECT 1");
  assert.deepEqual([fits.output, fits.error], ["ääää\n1", null]);
  const input = "SELECT 'ääää'; SELECT 12; SELECT 3";
  const exceeds = await driver.run(1, input);
  assert.equal(exceeds.output, "ääää");
  assert.equal(exceeds.error, `ERROR:  output exceeds 10 bytes (pg_task.output)\nSTATEMENT:  ${input}`);
});

test("output whose first line exceeds the limit is empty", async () => {
  const driver = await openDriver(10);
  const { output, error } = await driver.run(1, "SELECT 1 AS long_name, 2 AS longer_name");
  assert.equal(output, "");
  assert.match(error ?? "", /^ERROR: {2}output exceeds 10 bytes \(pg_task\.output\)\n/);
});

test("endless output is cancelled and rolled back in bounded memory", async () => {
  const limit = 1 << 20;
  const driver = await openDriver(limit);
  const input =
    "INSERT INTO effect VALUES ('endless'); SELECT repeat('x', 999) FROM (SELECT generate_series(1, 2000000000)) AS endless";
  const before = process.memoryUsage().rss;
  const { output, error } = await driver.run(1, input);
  const grown = process.memoryUsage().rss - before;
  assert.match(error ?? "", /^ERROR: {2}output exceeds 1048576 bytes \(pg_task\.output\)\n/);
  assert.equal(output, `INSERT 0 1\n${Array.from({ length: 1048 }, () => "x".repeat(999)).join("\n")}`);
  assert.equal((await admin.query("SELECT FROM effect")).rowCount, 0);
  assert.ok(grown < 100 << 20, `grew by ${grown} bytes`);
});

test("memory stays bounded while output streams on after the limit", async () => {
  const driver = await openDriver(1 << 20);
  driver.onCancel = (session, id) => driver.executor.receive({ type: "cancelAnswered", session, id });
  const before = process.memoryUsage().rss;
  let peak = 0;
  const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage().rss - before)), 20);
  const { output, error } = await driver.run(1, "SELECT repeat('x', 99999) FROM generate_series(1, 4000)");
  clearInterval(watch);
  assert.match(error ?? "", /^ERROR: {2}output exceeds 1048576 bytes \(pg_task\.output\)\n/);
  assert.equal(output?.length, 10 * 100_000 - 1);
  assert.ok(peak < 150 << 20, `grew by ${peak} bytes`);
});

test("one value beyond the limit is dropped, and the session continues", async () => {
  const driver = await openDriver(1 << 20);
  const input = "SELECT 1; SELECT repeat('x', 100000000)";
  const { output, error } = await driver.run(1, input);
  assert.equal(output, "1");
  assert.equal(error, `ERROR:  output exceeds 1048576 bytes (pg_task.output)\nSTATEMENT:  ${input}`);
  assert.equal((await driver.run(1, "SELECT 2")).output, "2");
});

test("an abort cancels the current run and releases all runs; the session continues", async () => {
  const driver = await openDriver();
  const running = driver.makeRun(1, "INSERT INTO effect VALUES ('aborted'); SELECT pg_sleep(600)");
  const waiting = driver.makeRun(1, "INSERT INTO effect VALUES ('waited')");
  driver.executor.dispatch([running, waiting]);
  await driver.untilRunning(1, "pg_sleep");
  driver.executor.receive({ type: "abort" });
  driver.executor.receive({ type: "abort" });
  for (const { id } of [running, waiting]) {
    assert.deepEqual(await driver.result(id), { outcome: "released", session: 1, id });
  }
  assert.equal(driver.messages.filter(({ type }) => type === "requestCancel").length, 1);
  assert.equal((await driver.run(1, "SELECT count(*) FROM effect")).output, "0");
});

test("an abort directly after dispatch does not miss the run", async () => {
  const driver = await openDriver();
  const run = driver.dispatch(1, "SELECT pg_sleep(600)");
  driver.executor.receive({ type: "abort" });
  assert.equal((await driver.result(run.id)).outcome, "released");
});

test("a run that ends despite an abort counts as ended", async () => {
  const driver = await openDriver();
  driver.onCancel = () => {};
  const input =
    "SELECT FROM pg_advisory_lock(7); SELECT FROM pg_advisory_unlock(7); INSERT INTO effect VALUES ('ended')";
  const run = driver.makeRun(1, input);
  await admin.query("SELECT pg_advisory_lock(7)");
  driver.executor.dispatch([run]);
  await driver.untilRunning(1, "pg_advisory_lock");
  driver.executor.receive({ type: "abort" });
  await driver.message("requestCancel");
  await admin.query("SELECT pg_advisory_unlock(7)");
  await driver.untilIdle(1, "COMMIT");
  await driver.cancel(1, run.id);
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.equal(result.error, null);
  assert.equal((await admin.query("SELECT FROM effect")).rowCount, 1);
});

test("a run that fails despite an abort keeps its error", async () => {
  const driver = await openDriver();
  driver.onCancel = () => {};
  const input = "SELECT FROM pg_advisory_lock(8); SELECT 1/0";
  const run = driver.makeRun(1, input);
  await admin.query("SELECT pg_advisory_lock(8)");
  driver.executor.dispatch([run]);
  await driver.untilRunning(1, "pg_advisory_lock");
  driver.executor.receive({ type: "abort" });
  await admin.query("SELECT pg_advisory_unlock(8)");
  await driver.untilFailed(1);
  await driver.cancel(1, run.id);
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.match(result.error ?? "", /division by zero/);
});

test("a user's cancel of the backend is the task's error", async () => {
  const driver = await openDriver();
  const run = driver.dispatch(1, "SELECT pg_sleep(600)");
  await driver.untilRunning(1, "pg_sleep");
  await admin.query("SELECT pg_cancel_backend($1)", [driver.backend(1).pid]);
  const result = await driver.result(run.id);
  assert.equal(result.outcome, "ended");
  assert.equal(result.error, "ERROR:  canceling statement due to user request\nSTATEMENT:  SELECT pg_sleep(600)");
});

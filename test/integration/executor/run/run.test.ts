import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
const driver = new ExecutorDriver(database.target, admin);
await driver.open(1);
await admin.query("CREATE TABLE effect (what text)");

beforeEach(async () => {
  await admin.query("TRUNCATE effect");
});

async function effects(): Promise<string[]> {
  const { rows } = await admin.query<{ what: string }>("SELECT what FROM effect ORDER BY what");
  return rows.map(({ what }) => what);
}

const insert = (what: string) => `INSERT INTO effect VALUES ('${what}')`;

test("after an explicit COMMIT the rest is a separate transaction", async () => {
  const { output } = await driver.run(1, `BEGIN; ${insert("a")}; COMMIT; ${insert("b")}; SELECT 1/0`);
  assert.equal(output, "BEGIN\nINSERT 0 1\nCOMMIT\nINSERT 0 1");
  assert.deepEqual(await effects(), ["a"]);
});

/** Runs an input, and returns its output: the command tags of its statements. */
async function tags(input: string): Promise<string | null> {
  return (await driver.run(1, input)).output;
}

test("only an explicit transaction outputs its COMMIT", async () => {
  assert.equal(await tags("SELECT 1; START TRANSACTION"), "1\nSTART TRANSACTION\nCOMMIT");
  assert.equal(await tags("BEGIN; COMMIT; BEGIN"), "BEGIN\nCOMMIT\nBEGIN\nCOMMIT");
  assert.equal(await tags("BEGIN; COMMIT; SELECT 1"), "BEGIN\nCOMMIT\n1");
  assert.equal(await tags("BEGIN; ROLLBACK"), "BEGIN\nROLLBACK");
  assert.equal(await tags("DO $$ BEGIN END $$; SELECT 1"), "DO\n1");
});

test("a transaction opened by COMMIT AND CHAIN is committed too", async () => {
  const input = `BEGIN; ${insert("a")}; COMMIT AND CHAIN; ${insert("b")}`;
  const { output } = await driver.run(1, input);
  assert.equal(output, "BEGIN\nINSERT 0 1\nCOMMIT\nINSERT 0 1\nCOMMIT");
  assert.deepEqual(await effects(), ["a", "b"]);
});

test("a failed transaction left open is rolled back", async () => {
  const { output, error } = await driver.run(1, `BEGIN; ${insert("failed")}; SELECT 1/0`);
  assert.equal(output, "BEGIN\nINSERT 0 1");
  assert.match(error ?? "", /^ERROR: {2}division by zero\n/);
  assert.deepEqual(await effects(), []);
});

test("a deferred constraint that fails when an open transaction commits is the task's error", async () => {
  const input =
    "CREATE TABLE late (i int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); BEGIN; INSERT INTO late VALUES (1), (1)";
  const { output, error } = await driver.run(1, input);
  assert.equal(output, "CREATE TABLE\nBEGIN\nINSERT 0 2");
  assert.equal(
    error,
    'ERROR:  duplicate key value violates unique constraint "late_pkey"\n' +
      `DETAIL:  Key (i)=(1) already exists.\nSTATEMENT:  ${input}`,
  );
});

test("an open transaction is rolled back when the output is unsupported", async () => {
  const { error } = await driver.run(1, `BEGIN; ${insert("a")}; COPY effect TO STDOUT (FORMAT binary)`);
  assert.match(error ?? "", /binary COPY TO STDOUT is not supported/);
  assert.deepEqual(await effects(), []);
});

test("statements that need to run outside a transaction run", async () => {
  const other = `${database.target.database}_other`;
  for (const [input, output] of [
    ["VACUUM effect", "VACUUM"],
    [`CREATE DATABASE ${other}`, "CREATE DATABASE"],
    [`DROP DATABASE ${other}`, "DROP DATABASE"],
    ["CREATE INDEX CONCURRENTLY ON effect (what)", "CREATE INDEX"],
    ["DISCARD ALL", "DISCARD ALL"],
  ] as const) {
    const result = await driver.run(1, input);
    assert.deepEqual([result.error, result.output], [null, output]);
  }
});

test("DO runs, and notices are not output", async () => {
  const { output, error } = await driver.run(
    1,
    `DO $$ BEGIN RAISE NOTICE 'ignored'; RAISE WARNING 'too'; ${insert("do")}; END $$`,
  );
  assert.deepEqual([output, error], ["DO", null]);
  assert.deepEqual(await effects(), ["do"]);
});

test("a procedure may commit", async () => {
  await admin.query(
    `CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$ BEGIN ${insert("first")}; COMMIT; ${insert("second")}; PERFORM 1/0; END $$`,
  );
  const { error } = await driver.run(1, "CALL steps()");
  assert.match(error ?? "", /division by zero/);
  assert.deepEqual(await effects(), ["first"]);
});

test("an input of 10 MB runs and is complete in its error", async () => {
  const text = "ä".repeat(5 << 20);
  const length = await driver.run(1, `SELECT length('${text}')`);
  assert.equal(length.output, String(text.length));
  const input = `SELECT 1/0, '${text}'`;
  const { error } = await driver.run(1, input);
  assert.ok(error === `ERROR:  division by zero\nSTATEMENT:  ${input}`);
});

test("special characters of an input are not interpreted", async () => {
  const { output } = await driver.run(1, String.raw`SELECT E'\\000', '\000', $$'$$ || E'\''`);
  assert.equal(output, "?column?\t?column?\t?column?\n\\000\t\\000\t''");
});

test("a task's settings and application name identify it", async () => {
  const look =
    "SELECT current_setting('pg_task.id'), current_setting('pg_task.schema'), " +
    "current_setting('pg_task.table'), current_setting('pg_task.group'), " +
    "(SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid())";
  const format = { header: false, string: true, delimiter: "|", quote: "", escape: "", null: "" };
  const { output } = await driver.run(1, look, {
    id: "9007199254740993",
    group: "the group",
    ...format,
  });
  assert.equal(output, "9007199254740993|public|task|the group|pg_task public task the group");
});

test("any group name reaches the task unchanged", async () => {
  const group = String.raw`it's \' E'\\' "ä€😀" $1 -- ;`;
  const { output, error } = await driver.run(1, "SELECT current_setting('pg_task.group')", {
    group,
  });
  assert.deepEqual([output, error], [group, null]);
});

test("any group name reaches the task without standard_conforming_strings", async () => {
  const role = `lax_${database.target.database}`;
  await admin.query(`CREATE ROLE ${role} LOGIN; ALTER ROLE ${role} SET backslash_quote = on`);
  try {
    await admin.query(`ALTER ROLE ${role} SET standard_conforming_strings = off`);
    const lax = new ExecutorDriver({ ...database.target, user: role }, admin);
    await lax.open(1);
    const group = String.raw`\', '') -- \\'`;
    const { output, error } = await lax.run(1, "SELECT current_setting('pg_task.group')", {
      group,
    });
    assert.deepEqual([output, error], [group, null]);
    await lax.executor.stop();
  } finally {
    await admin.query(`DROP ROLE ${role}`);
  }
});

test("start and stop are read from the server's clock around the run", async () => {
  const { start, stop, output } = await driver.run(
    1,
    "SET DateStyle = 'German'; SET TimeZone = 'Asia/Kathmandu'; SET search_path = ''; " +
      "SELECT extract(epoch FROM statement_timestamp())",
  );
  const { rows } = await admin.query<{ ordered: boolean }>(
    "SELECT $1::timestamptz <= to_timestamp($2::numeric + 0.001) AND to_timestamp($2::numeric) <= $3::timestamptz AS ordered",
    [start, output?.split("\n").at(-1), stop],
  );
  assert.deepEqual(rows, [{ ordered: true }]);
  assert.match(start, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  assert.match(stop ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
});

test("functions and operators of the task cannot falsify the stop time", async () => {
  const { stop, error } = await driver.run(
    1,
    "CREATE SCHEMA hostile; " +
      "CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::timestamptz $$; " +
      "CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 1/0::text $$; " +
      "SET search_path = hostile, pg_catalog",
  );
  assert.match(error ?? "", /operator does not exist/);
  assert.ok((stop ?? "") > "2020");
});

test("runs of one session run in order without overlap", async () => {
  const runs = ["SELECT pg_sleep(0.01)", "SELECT 2", "SELECT 3"].map((input) => driver.makeRun(1, input));
  driver.executor.dispatch(runs);
  const results = await Promise.all(runs.map(({ id }) => driver.result(id)));
  const times = results.flatMap((result) => (result.outcome === "ended" ? [result.start, result.stop ?? ""] : []));
  assert.equal(times.length, 6);
  assert.deepEqual(
    times.toSorted((one, other) => one.localeCompare(other)),
    times,
  );
});

test("a task leaves no encoding", async () => {
  await driver.run(1, "SET client_encoding = 'LATIN1'");
  assert.equal((await driver.run(1, "SELECT 'ä€'")).output, "ä€");
});

test("locks are released before the result is reported", async () => {
  await driver.run(1, "SELECT FROM pg_advisory_lock(815)");
  const { rows } = await admin.query<{ free: boolean }>("SELECT pg_try_advisory_lock(815) AS free");
  assert.deepEqual(rows, [{ free: true }]);
  await admin.query("SELECT pg_advisory_unlock(815)");
});

test("a role's settings and role apply to each task anew", async () => {
  const role = `own_${database.target.database}`;
  await admin.query(`CREATE ROLE ${role} LOGIN IN ROLE pg_monitor; GRANT CREATE ON SCHEMA public TO ${role}`);
  try {
    await admin.query(`ALTER ROLE ${role} SET work_mem = '5MB'; ALTER ROLE ${role} SET search_path = 'pg_catalog'`);
    await admin.query(`ALTER ROLE ${role} SET role = 'pg_monitor'`);
    const own = new ExecutorDriver({ ...database.target, user: role }, admin);
    await own.open(1);
    const look = "SELECT current_user || current_setting('work_mem') || current_setting('search_path')";
    assert.equal((await own.run(1, look)).output, "pg_monitor5MBpg_catalog");
    await own.run(1, "SET work_mem = '6MB'; SET search_path = public; RESET SESSION AUTHORIZATION; SET ROLE NONE");
    assert.equal((await own.run(1, look)).output, "pg_monitor5MBpg_catalog");
    await own.executor.stop();
  } finally {
    await admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  }
});

test("save keeps the session's state but not a run's timeout and identity", async () => {
  await driver.run(1, "SET work_mem = '7MB'; CREATE TEMP TABLE kept (i int); SET client_encoding = 'LATIN1'", {
    save: true,
    timeoutMs: 3_600_000,
  });
  const group = "ä€";
  const { output, error } = await driver.run(
    1,
    "SELECT current_setting('work_mem') || current_setting('statement_timeout') || current_setting('pg_task.group') || (SELECT count(*) FROM kept)",
    { group },
  );
  assert.deepEqual([output, error], [`7MB0${group}0`, null]);
  assert.equal((await driver.run(1, "SELECT to_regclass('kept') IS NULL")).output, "t");
});

test("between runs the application name shows only the table", async () => {
  await driver.run(1, "SELECT 1");
  const { rows } = await admin.query<{ name: string }>(
    "SELECT application_name AS name FROM pg_stat_activity WHERE pid = $1",
    [driver.backend(1).pid],
  );
  assert.deepEqual(rows, [{ name: "pg_task public task" }]);
});

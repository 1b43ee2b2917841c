import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const runs = await ClaimedRuns.create(database);
const { admin, driver } = runs;
const role = `weak_${database.target.database}`;
await admin.query(`CREATE ROLE ${role}; GRANT INSERT ON effect TO ${role}`);
await admin.query(
  "CREATE FUNCTION restrict() RETURNS text LANGUAGE sql AS $$ SELECT set_config('transaction_read_only', 'on', true) $$",
);
await admin.query("CREATE TABLE late (i int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1)");

beforeEach(async () => {
  await admin.query("TRUNCATE effect");
});

const insert = (what: string) => `INSERT INTO effect VALUES ('${what}')`;

interface Case {
  readonly title: string;
  readonly input: string;
  /** Matches the error. Absent if no error is expected. */
  readonly error?: RegExp;
  readonly effects: string[];
  /** Whether the run leaves a proof in its ledger. */
  readonly proven: boolean;
  /** Whether the effect was committed before the task's row changed. Defaults to `proven`. */
  readonly committed?: boolean;
  readonly output?: string | null;
}

const undone = /^ERROR: {2}task was stopped or deleted while it ran, its effect is undone\nSTATEMENT: {2}INSERT/;

/** Inputs that write `a`, and whose runs have a proof. */
const writing: Readonly<Record<string, string>> = {
  "SET ROLE to one without privileges": `SET ROLE ${role}; ${insert("a")}`,
  "SET LOCAL ROLE by set_config": `SELECT set_config('role', '${role}', true); ${insert("a")}`,
  "SET SESSION AUTHORIZATION": `SET SESSION AUTHORIZATION ${role}; ${insert("a")}`,
  "an empty search_path": `${insert("a")}; SET search_path = ''`,
  "a search_path that shadows functions and operators":
    "CREATE SCHEMA hostile; " +
    "CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::timestamptz $$; " +
    "CREATE FUNCTION hostile.txid_current_if_assigned() RETURNS bigint LANGUAGE sql AS 'SELECT NULL::bigint'; " +
    "CREATE FUNCTION hostile.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'; " +
    "CREATE FUNCTION hostile.equal(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'; " +
    "CREATE FUNCTION hostile.equal(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false'; " +
    "CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.equal); " +
    "CREATE OPERATOR hostile.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.equal); " +
    "CREATE OPERATOR hostile.= (LEFTARG = int, RIGHTARG = int, FUNCTION = hostile.equal); " +
    `${insert("a")}; SET search_path = hostile, pg_catalog, public`,
  "SET default_transaction_read_only": `${insert("a")}; SET default_transaction_read_only = on`,
  "SET LOCAL statement_timeout and lock_timeout of 1 ms": `${insert("a")}; SET LOCAL statement_timeout = 1; SET LOCAL lock_timeout = 1`,
  "LOCK TABLE on the task table": `${insert("a")}; LOCK TABLE task IN ACCESS EXCLUSIVE MODE`,
  "unlocking all advisory locks": `${insert("a")}; SELECT pg_advisory_unlock_all()`,
  "a task that updates its own row": `${insert("a")}; UPDATE task SET data = 'own' WHERE id = $id`,
  "standard_conforming_strings off and another encoding": `${insert("a")}; SET standard_conforming_strings = off; SET client_encoding = 'SJIS'`,
};

const cases: readonly Case[] = [
  ...Object.entries(writing).map(([title, input]) => ({ title, input, effects: ["a"], proven: true })),
  { title: "a run that writes has a proof", input: insert("a"), effects: ["a"], proven: true },
  {
    title: "a run that only reads has no proof",
    input: "SELECT count(*) FROM effect",
    effects: [],
    proven: false,
    output: "0",
  },
  { title: "an empty input has no proof", input: "", effects: [], proven: false, output: null },
  {
    title: "a failed run leaves neither effect nor proof",
    input: `${insert("a")}; SELECT 1/0`,
    error: /division by zero$/,
    effects: [],
    proven: false,
    output: "INSERT 0 1",
  },
  {
    title: "BEGIN READ ONLY and a read",
    input: "BEGIN READ ONLY; SELECT 1",
    effects: [],
    proven: false,
    output: "BEGIN\n1\nCOMMIT",
  },
  {
    title: "BEGIN READ ONLY and a write",
    input: `BEGIN READ ONLY; ${insert("a")}`,
    error: /cannot execute INSERT in a read-only transaction$/,
    effects: [],
    proven: false,
  },
  {
    title: "a run that writes and then makes its transaction read-only is not wrapped",
    input: `${insert("a")}; SET TRANSACTION READ ONLY`,
    effects: ["a"],
    proven: false,
    output: "INSERT 0 1\nSET",
  },
  {
    title: "the same by a function, in a wrappable input",
    input: `${insert("a")}; SELECT restrict()`,
    effects: ["a"],
    proven: false,
  },
  {
    title: "after COMMIT in the middle, the rest is a separate transaction",
    input: `${insert("a")}; COMMIT; ${insert("b")}; SELECT 1/0`,
    error: /division by zero$/,
    effects: ["a"],
    proven: false,
  },
  {
    title: "ROLLBACK in the middle",
    input: `${insert("a")}; ROLLBACK; ${insert("b")}`,
    effects: ["b"],
    proven: false,
  },
  {
    title: "ROLLBACK at the beginning",
    input: `ROLLBACK; ${insert("a")}; SELECT current_setting('pg_task.id') = '$id'`,
    effects: ["a"],
    proven: false,
    output: "ROLLBACK\nINSERT 0 1\nt",
  },
  {
    title: "an explicit transaction left open",
    input: `/* one */ -- two\n ; BEGIN; ${insert("a")}`,
    effects: ["a"],
    proven: true,
    output: "BEGIN\nINSERT 0 1\nCOMMIT",
  },
  {
    title: "an explicit transaction that commits",
    input: `START TRANSACTION; ${insert("a")}; COMMIT`,
    effects: ["a"],
    proven: false,
  },
  {
    title: "COMMIT AND CHAIN with the last transaction left open",
    input: `${insert("a")}; COMMIT AND CHAIN; ${insert("b")}`,
    effects: ["a", "b"],
    proven: true,
    output: "INSERT 0 1\nCOMMIT\nINSERT 0 1\nCOMMIT",
  },
  {
    title: "savepoints",
    input: `${insert("a")}; SAVEPOINT s; ${insert("b")}; ROLLBACK TO SAVEPOINT s; ${insert("c")}; RELEASE SAVEPOINT s`,
    effects: ["a", "c"],
    proven: true,
    output: "INSERT 0 1\nSAVEPOINT\nINSERT 0 1\nROLLBACK\nINSERT 0 1\nRELEASE",
  },
  {
    title: "a savepoint left open",
    input: `SAVEPOINT s; ${insert("a")}; SAVEPOINT t; ${insert("b")}`,
    effects: ["a", "b"],
    proven: true,
  },
  {
    title: "a deferred constraint that fails at COMMIT",
    input: `${insert("a")}; INSERT INTO late VALUES (1)`,
    error: /duplicate key value violates unique constraint "late_pkey"$/,
    effects: [],
    proven: false,
    output: "INSERT 0 1\nINSERT 0 1",
  },
  {
    title: "DISCARD ALL alone",
    input: "DISCARD ALL",
    effects: [],
    proven: false,
    output: "DISCARD ALL",
  },
  {
    title: "DISCARD ALL after another statement is an error, as without pg-task",
    input: `${insert("a")}; DISCARD ALL`,
    error: /DISCARD ALL cannot run inside a transaction block$/,
    effects: [],
    proven: false,
  },
  { title: "VACUUM", input: "VACUUM effect", effects: [], proven: false, output: "VACUUM" },
  {
    title: "VACUUM in an explicit transaction is an error",
    input: "BEGIN; VACUUM effect",
    error: /VACUUM cannot run inside a transaction block$/,
    effects: [],
    proven: false,
    output: "BEGIN",
  },
  {
    title: "INSERT; COMMIT; VACUUM does not run twice",
    input: `${insert("a")}; COMMIT; VACUUM effect`,
    error: /VACUUM cannot run inside a transaction block$/,
    effects: ["a"],
    proven: false,
  },
  {
    title: "a task that stops itself",
    input: `${insert("a")}; UPDATE task SET state = 'STOP' WHERE id = $id`,
    effects: ["a"],
    proven: true,
    committed: false,
  },
  {
    title: "a task that deletes its own row",
    input: `${insert("a")}; DELETE FROM task WHERE id = $id`,
    effects: ["a"],
    proven: true,
    committed: false,
  },
  {
    title: "a task that drops the finish function is undone",
    input: `${insert("a")}; DROP FUNCTION task_finish`,
    error: /function public.task_finish\(bigint, bigint, text, integer\) does not exist$/,
    effects: [],
    proven: false,
  },
  {
    title: "SQL that raises the SQLSTATE of a stopped task keeps its own error",
    input: `SELECT 1; DO $$ BEGIN RAISE 'mine' USING ERRCODE = 'PGT01'; END $$`,
    error: /^ERROR: {2}mine$/,
    effects: [],
    proven: false,
  },
];

for (const { title, input, error, effects, proven, committed, output } of cases) {
  test(title, async () => {
    const outcome = await runs.run(input);
    assert.match(outcome.error?.split("\n")[0] ?? "", error ?? /^$/);
    assert.deepEqual(outcome.effects, effects);
    assert.equal(outcome.proofs, proven ? 1 : 0);
    assert.equal(outcome.committed, committed ?? proven);
    if (output !== undefined) assert.equal(outcome.output, output);
    await admin.query("DROP SCHEMA IF EXISTS hostile CASCADE");
  });
}

test("a run that is not atomic has no proof", async () => {
  const outcome = await runs.run(insert("a"), { atomic: false });
  assert.deepEqual([outcome.effects, outcome.proofs, outcome.committed], [["a"], 0, false]);
});

test("the proof goes to the run's ledger", async () => {
  const run = await runs.claim(insert("a"), { ledger: 2 });
  await runs.dispatch(run);
  const { rowCount } = await admin.query("SELECT FROM task_ledger_2 WHERE id = $1", [run.id]);
  assert.equal(rowCount, 1);
});

test("runs with save are wrapped too and keep their settings", async () => {
  const first = await runs.run(`SET work_mem = '7MB'; ${insert("a")}`, { save: true });
  assert.deepEqual([first.error, first.proofs], [null, 1]);
  const second = await runs.run(`SELECT current_setting('work_mem'); ${insert("b")}`);
  assert.deepEqual([second.output, second.proofs], ["7MB\nINSERT 0 1", 1]);
});

test("the proof is recorded by the role that ALTER ROLE sets", async () => {
  const login = `login_${database.target.database}`;
  await admin.query(
    `CREATE ROLE ${login} LOGIN NOINHERIT; CREATE ROLE ${login}_owner; GRANT ${login}_owner TO ${login}; GRANT pg_monitor TO ${login}_owner;
     GRANT ALL ON ALL TABLES IN SCHEMA public TO ${login}_owner; ALTER ROLE ${login} SET role = '${login}_owner'`,
  );
  const others = await ClaimedRuns.create(database, login);
  const outcome = await others.run(`${insert("a")}; SELECT current_user`);
  assert.deepEqual([outcome.error, outcome.proofs], [null, 1]);
  assert.match(outcome.output ?? "", /_owner$/);
  const unset = await others.run(`${insert("b")}; SET ROLE NONE`);
  assert.deepEqual([unset.error, unset.proofs], [null, 1]);
  await others.driver.executor.stop();
  await admin.query(`DROP OWNED BY ${login}, ${login}_owner; DROP ROLE ${login}; DROP ROLE ${login}_owner`);
});

test("a prepared transaction is neither proven nor lost", async () => {
  const { rows } = await admin.query<{ setting: string }>(
    "SELECT setting FROM pg_settings WHERE name = 'max_prepared_transactions'",
  );
  const isEnabled = rows[0]?.setting !== "0";
  const outcome = await runs.run(`${insert("a")}; PREPARE TRANSACTION 'left'`);
  assert.equal(outcome.proofs, 0);
  if (!isEnabled) assert.match(outcome.error ?? "", /prepared transactions are disabled/);
  else await admin.query("COMMIT PREPARED 'left'");
  assert.deepEqual(await runs.effects(), isEnabled ? ["a"] : []);
});

test("a task that terminates its backend leaves neither effect nor proof", async () => {
  const own = await ClaimedRuns.create(database);
  const run = await own.begin(`${insert("a")}; SELECT pg_terminate_backend(pg_backend_pid())`);
  await own.driver.message("lost");
  assert.deepEqual([await own.effects(), await own.proofs(run)], [[], 0]);
  assert.deepEqual(own.driver.results(), []);
});

test("a finish function with non-ASCII name is found in any client encoding", async () => {
  await admin.query(
    `CREATE FUNCTION "завершить"(bigint, bigint, text, integer) RETURNS boolean LANGUAGE sql
     AS 'SELECT public.task_finish($1, $2, $3, $4)'`,
  );
  const other = new ExecutorDriver(database.target, admin, {
    finishFunction: 'public."завершить"',
  });
  const { owner } = await other.open(1);
  const run = await runs.claim(`SET client_encoding = 'LATIN1'; ${insert("a")}`);
  await admin.query("UPDATE task SET owner = $1 WHERE id = $2", [owner, run.id]);
  other.executor.dispatch([run]);
  const result = await other.result(run.id);
  assert.deepEqual(result.outcome === "ended" && [result.error, result.committed], [null, true]);
});

for (const [title, change] of [
  ["stopped", "UPDATE task SET state = 'STOP' WHERE id = $1"],
  ["deleted", "DELETE FROM task WHERE id = $1"],
  ["given to another session", "UPDATE task SET owner = '1 x' WHERE id = $1"],
  ["planned anew", "UPDATE task SET state = 'PLAN', owner = NULL WHERE id = $1"],
] as const) {
  test(`a task ${title} during the run: the effect is undone, and the error says so`, async () => {
    const run = await runs.claim(`${insert("a")}; SELECT FROM pg_advisory_lock(32)`);
    await admin.query("SELECT pg_advisory_lock(32)");
    driver.executor.dispatch([run]);
    await driver.untilBlocked(1, "pg_advisory_lock");
    await admin.query(change, [run.id]);
    await admin.query("SELECT pg_advisory_unlock(32)");
    const outcome = await runs.outcome(run);
    assert.match(outcome.error ?? "", undone);
    assert.deepEqual([outcome.effects, outcome.proofs, outcome.committed], [[], 0, false]);
  });
}

test("an effect committed before the stop remains", async () => {
  const run = await runs.claim(insert("a"));
  const outcome = await runs.dispatch(run);
  await admin.query("UPDATE task SET state = 'STOP' WHERE id = $1", [run.id]);
  assert.deepEqual([outcome.committed, outcome.effects], [true, ["a"]]);
});

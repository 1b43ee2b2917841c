import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Run, RunResult } from "../../../../src/shared/ipc/run.js";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase } from "../../../support/database.js";

const database = await createDatabase();
const runs = await ClaimedRuns.create(database);
const { admin, driver } = runs;
const user = await database.connect();

beforeEach(async () => {
  await admin.query("TRUNCATE effect");
});

const insert = (what: string) => `INSERT INTO effect VALUES ('${what}')`;
const cancelled = /^ERROR: {2}canceling statement due to user request\n/;

/** Dispatches a run, and waits until it is blocked by this advisory lock, which the test holds. */
async function dispatchBlocked(lock: number, input: string): Promise<Run> {
  await admin.query("SELECT pg_advisory_lock($1)", [lock]);
  const run = await runs.begin(input);
  await driver.untilBlocked(1, `pg_advisory_lock(${lock})`);
  return run;
}

const stop = async (run: Run) => {
  await user.query("UPDATE task SET state = 'STOP' WHERE id = $1", [run.id]);
  driver.executor.receive({ type: "cancel", session: 1, id: run.id });
};

for (const [title, begin] of [
  ["during the input", ""],
  ["that REPEATABLE READ cannot see", "BEGIN ISOLATION LEVEL REPEATABLE READ; "],
] as const) {
  test(`a stop ${title} cancels the run and undoes it`, async () => {
    const run = await dispatchBlocked(41, `${begin}${insert("a")}; SELECT FROM pg_advisory_lock(41)`);
    await stop(run);
    const outcome = await runs.outcome(run);
    await admin.query("SELECT pg_advisory_unlock(41)");
    assert.match(outcome.error ?? "", cancelled);
    assert.deepEqual([outcome.effects, outcome.proofs, outcome.committed], [[], 0, false]);
  });
}

test("a stop that waits for the task's own row lock comes after the effect", async () => {
  const run = await dispatchBlocked(
    43,
    `${insert("a")}; UPDATE task SET data = 'own' WHERE id = $id; SELECT FROM pg_advisory_lock(43)`,
  );
  const stopping = user.query("UPDATE task SET state = 'STOP' WHERE id = $1", [run.id]);
  await admin.query("SELECT pg_advisory_unlock(43)");
  const outcome = await runs.outcome(run);
  await stopping;
  assert.deepEqual([outcome.error, outcome.effects, outcome.committed], [null, ["a"], true]);
  assert.equal(await runs.row(run, "state"), "STOP");
});

for (const [title, input] of [
  ["plain", `${insert("$id")}; SELECT pg_sleep(0.001)`],
  ["stepwise", `BEGIN; ${insert("$id")}; SELECT pg_sleep(0.001)`],
  ["REPEATABLE READ", `BEGIN ISOLATION LEVEL REPEATABLE READ; ${insert("$id")}`],
] as const) {
  test(`a stop at any moment, ${title}: effect and proof together, or neither and an error`, async () => {
    for (let round = 0; round < 40; round++) {
      const run = await runs.claim(input);
      const stopping = stop(run);
      driver.executor.dispatch([run]);
      const result = await driver.result(run.id);
      await stopping;
      await expectConsistent(run, result);
    }
  });
}

/** Asserts that the result agrees with what is in the database. */
async function expectConsistent(run: Run, result: RunResult): Promise<void> {
  const hadEffect = (await runs.effects()).includes(run.id);
  assert.equal(await runs.proofs(run), hadEffect ? 1 : 0);
  if (result.outcome === "released") assert.equal(hadEffect, false);
  else assert.deepEqual([result.committed, result.error === null], [hadEffect, hadEffect]);
}

test("a cancel during COMMIT rolls back", async () => {
  await admin.query(
    `CREATE TABLE slow (); CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
     'BEGIN PERFORM pg_advisory_lock(44); RETURN NULL; END';
     CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION slow()`,
  );
  await admin.query("SELECT pg_advisory_lock(44)");
  for (const input of ["", "BEGIN; "]) {
    const run = await runs.begin(`${input}${insert("a")}; INSERT INTO slow DEFAULT VALUES`);
    await driver.untilBlocked(1, "COMMIT");
    driver.executor.receive({ type: "cancel", session: 1, id: run.id });
    const outcome = await runs.outcome(run);
    assert.match(outcome.error ?? "", cancelled);
    assert.deepEqual([outcome.effects, outcome.proofs, outcome.committed], [[], 0, false]);
  }
  const aborted = await runs.begin(`${insert("a")}; INSERT INTO slow DEFAULT VALUES`);
  await driver.untilBlocked(1, "COMMIT");
  driver.executor.receive({ type: "abort" });
  assert.equal((await driver.result(aborted.id)).outcome, "released");
  const late = await runs.run(`${insert("a")}; INSERT INTO slow DEFAULT VALUES`, { timeoutMs: 20 });
  assert.match(late.error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
  assert.deepEqual([late.effects, late.proofs], [[], 0]);
  await admin.query("SELECT pg_advisory_unlock(44)");
});

test("a conflict at COMMIT repeats the whole run with new output", async () => {
  await admin.query(
    `CREATE SEQUENCE tries; CREATE TABLE conflict ();
     CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN IF nextval('tries') % 3 <> 0 THEN RAISE 'again' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$;
     CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON conflict DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION conflict()`,
  );
  const outcome = await runs.run(`${insert("a")}; INSERT INTO conflict DEFAULT VALUES`);
  assert.deepEqual([outcome.error, outcome.output], [null, "INSERT 0 1\nINSERT 0 1"]);
  assert.deepEqual([outcome.effects, outcome.proofs], [["a"], 1]);
  const { rows } = await admin.query<{ tries: string }>("SELECT last_value AS tries FROM tries");
  assert.deepEqual(rows, [{ tries: "3" }]);
});

test("a persistent conflict is the task's error after five attempts", async () => {
  await admin.query(
    `CREATE SEQUENCE vain; CREATE TABLE stubborn ();
     CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM nextval('vain'); RAISE 'never' USING ERRCODE = '40P01'; END $$;
     CREATE CONSTRAINT TRIGGER stubborn AFTER INSERT ON stubborn DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION stubborn()`,
  );
  const outcome = await runs.run(`BEGIN; ${insert("a")}; INSERT INTO stubborn DEFAULT VALUES`);
  assert.match(outcome.error ?? "", /^ERROR: {2}never\n/);
  assert.deepEqual([outcome.effects, outcome.proofs], [[], 0]);
  const { rows } = await admin.query<{ tries: string }>("SELECT last_value AS tries FROM vain");
  assert.deepEqual(rows, [{ tries: "5" }]);
});

test("a conflict in the input, or after a COMMIT in it, is the task's error", async () => {
  await admin.query("SELECT setval('tries', 1, false)");
  const own = await runs.run("DO $$ BEGIN PERFORM nextval('tries'); RAISE 'mine' USING ERRCODE = '40001'; END $$");
  assert.match(own.error ?? "", /^ERROR: {2}mine\n/);
  await admin.query("SELECT setval('tries', 1, false)");
  const behind = await runs.run(`${insert("a")}; COMMIT AND CHAIN; INSERT INTO conflict DEFAULT VALUES`);
  assert.match(behind.error ?? "", /^ERROR: {2}again\n/);
  assert.deepEqual(behind.effects, ["a"]);
});

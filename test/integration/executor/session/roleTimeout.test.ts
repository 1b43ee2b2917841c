import assert from "node:assert/strict";
import { after, beforeEach, describe } from "node:test";
import { eventually } from "../../../support/tasks.js";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase, onServer } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";

const database = await createDatabase();
const client = await database.connect();
const role = `timed_${database.target.database}`;
await client.query(`CREATE ROLE ${role} LOGIN`);
// By then, the database has been dropped, and with it the role's privileges.
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));
await client.query(`GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role}`);

const timedOut = (input: string): string =>
  `ERROR:  canceling statement due to statement timeout\nSTATEMENT:  ${input}`;
const show = "SHOW statement_timeout";
const sleep = "SELECT pg_sleep(600)";

/** Creates an executor whose sessions use a role with this statement_timeout. */
async function runsOf(statementTimeout: string): Promise<ClaimedRuns> {
  await client.query(`ALTER ROLE ${role} SET statement_timeout = '${statementTimeout}'`);
  const runs = await ClaimedRuns.create(database, role);
  await client.query(`GRANT ALL ON effect TO ${role}`);
  return runs;
}

describe("with a statement_timeout of the role", () => {
  beforeEach(() => client.query("DROP TABLE IF EXISTS effect"));

  for (const own of ["100ms", "1100ms"]) {
    test(`${own} applies to a task without timeout and keeps the session`, async () => {
      const { driver } = await runsOf(own);
      const { pid } = driver.backend(1);
      const runs = [sleep, show, sleep, "SELECT pg_backend_pid()"].map((input) => driver.makeRun(1, input));
      driver.executor.dispatch(runs);
      const results = await Promise.all(runs.map(({ id }) => driver.result(id)));
      const outcomes = results.map((result) =>
        result.outcome === "ended" ? (result.error ?? result.output) : result.outcome,
      );
      assert.deepEqual(outcomes, [timedOut(sleep), own, timedOut(sleep), String(pid)]);
    });

    test(`${own} applies to a task with a larger timeout`, async () => {
      const { driver } = await runsOf(own);
      assert.equal((await driver.run(1, sleep, { timeoutMs: 600_000 })).error, timedOut(sleep));
      assert.equal((await driver.run(1, show, { timeoutMs: 600_000 })).output, own);
      assert.equal((await driver.run(1, show)).output, own);
    });
  }

  test("a smaller timeout of the task applies to that task only", async () => {
    const { driver } = await runsOf("1h");
    assert.equal((await driver.run(1, sleep, { timeoutMs: 20 })).error, timedOut(sleep));
    assert.equal((await driver.run(1, show, { timeoutMs: 60_000 })).output, "1min");
    assert.equal((await driver.run(1, show)).output, "1h");
    const keeps = { save: true };
    assert.equal((await driver.run(1, show, { timeoutMs: 60_000, ...keeps })).output, "1min");
    assert.equal((await driver.run(1, show, keeps)).output, "1h");
  });

  test("the smaller timeout applies to a remote task too", async () => {
    const { driver } = await runsOf("1h");
    const { host, port, database: name } = database.target;
    const remote = `host=${host} port=${port} dbname=${name} user=${role}`;
    // Connecting has used up part of the timeout, so less than a minute is left.
    assert.match((await driver.run(1, show, { remote, timeoutMs: 60_000 })).output ?? "", /ms$/);
    assert.equal((await driver.run(1, show, { remote, timeoutMs: 7_200_000 })).output, "1h");
    assert.equal((await driver.run(1, show, { remote })).output, "1h");
  });

  test("it does not apply to the statements around the input", async () => {
    const runs = await runsOf("50ms");
    const locker = await database.connect();
    await locker.query("BEGIN; LOCK TABLE task_ledger_1");
    const run = await runs.begin("INSERT INTO effect VALUES ('once')");
    const { pid } = runs.driver.backend(1);
    await eventually(
      client,
      `SELECT FROM pg_stat_activity WHERE pid = ${pid} AND wait_event_type = 'Lock'
         AND clock_timestamp() - query_start > '100 ms'`,
      (rows) => rows.length === 1,
    );
    await locker.query("COMMIT");
    const result = await runs.driver.result(run.id);
    assert.equal(result.outcome === "ended" ? result.error : result.outcome, null);
    const { rows } = await client.query("SELECT what FROM effect");
    assert.deepEqual(rows, [{ what: "once" }]);
  });
});

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import type { Run } from "../../../../src/shared/ipc/run.js";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase } from "../../../support/database.js";
import type { EndedResult } from "../../../support/executorDriver.js";

const database = await createDatabase();
const runs = await ClaimedRuns.create(database);
const { admin, driver } = runs;
driver.onCancel = (session, id) => void driver.cancel(session, id);

const insert = "INSERT INTO effect VALUES ($id)";
const show = "SELECT current_setting('statement_timeout')";
const sleep = "SELECT pg_sleep(600)";
const timedOut = (input: string): string =>
  `ERROR:  canceling statement due to statement timeout\nSTATEMENT:  ${input}`;

async function ended(of: readonly Run[]): Promise<EndedResult[]> {
  const all = await Promise.all(of.map(({ id }) => driver.result(id)));
  return all.flatMap((result) => (result.outcome === "ended" ? result : []));
}

beforeEach(() => admin.query("TRUNCATE effect"));

// A timeout of a second or more does not keep a run from being pipelined.
describe("the timeout of a pipelined run", () => {
  test("applies to this run only, wherever it is in the pipeline", async () => {
    const timeouts = [60_000, 0, 90_000, 120_000, 0];
    const chain: Run[] = [];
    for (const timeoutMs of timeouts) chain.push(await runs.claim(show, { timeoutMs }));
    driver.executor.dispatch(chain);
    assert.deepEqual(
      (await ended(chain)).map(({ output }) => output),
      ["1min", "0", "90s", "2min", "0"],
    );
  });

  test("applies together with args", async () => {
    const run = await runs.claim(`${show}, $1::integer`, { timeoutMs: 60_000, args: "[7]" });
    const first = await runs.claim(insert);
    driver.executor.dispatch([first, run]);
    assert.match((await ended([run]))[0]?.output ?? "", /\n1min\t7$/);
  });

  for (const input of [sleep, `${insert}; ${sleep}`, `${insert}; SELECT pg_sleep(0.7); SELECT pg_sleep(0.7)`]) {
    test(`ends the run without effect, and costs no other run its effect: ${input}`, async () => {
      const before = await runs.claim(insert);
      const late = await runs.claim(input, { timeoutMs: 1_000 });
      const after = [await runs.claim(insert, { timeoutMs: 60_000 }), await runs.claim(insert)];
      driver.executor.dispatch([before, late, ...after]);
      const results = await ended([before, late, ...after]);
      assert.deepEqual(
        results.map(({ id, error, committed }) => [id, error, committed]),
        [[before.id, null, true], [late.id, timedOut(late.input), false], ...after.map(({ id }) => [id, null, true])],
      );
      const effects = [before, ...after].map(({ id }) => id);
      assert.deepEqual((await runs.effects()).toSorted(), effects.toSorted());
      assert.equal(await runs.proofs(late), 0);
    });
  }

  test("covers the commit", async () => {
    await admin.query(`
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(600); END$$;
      CREATE TABLE slow (what text);
      CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION slow()`);
    const { error, committed, proofs } = await runs.run("INSERT INTO slow VALUES ($id)", { timeoutMs: 1_000 });
    assert.match(error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
    assert.deepEqual([committed, proofs], [false, 0]);
    assert.equal((await runs.run(show)).output, "0");
  });
});

import assert from "node:assert/strict";
import { memoryShare, storedInMemory } from "../../../../src/shared/spillBuffer.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver, type Ended } from "../../../support/executorDriver.js";
import { test } from "../../../support/limitedTest.js";
import { waitForRow } from "../../../support/waitFor.js";

const mebi = 1 << 20;
const database = await createDatabase();
const admin = await database.connect();

/** Large outputs of this driver are written when `written` is called, not by themselves. */
class SlowManager extends ExecutorDriver {
  override readonly writesAtOnce = false;

  large(): Ended[] {
    return this.results().flatMap((each) => (each.outcome === "ended" ? [each] : []));
  }
}

const count = 8;
const outputs = [
  ["in many rows", `SELECT repeat('$', 1048575) FROM generate_series(1, 6)`],
  ["in one value", `SELECT repeat('$', 6291455)`],
] as const;

for (const [how, input] of outputs) {
  test(`more output than fits into memory, ${how}, comes out whole, one after another`, async () => {
    const driver = new SlowManager(database.target, admin);
    const sessions = Array.from({ length: count }, (_, index) => index + 1);
    await Promise.all(sessions.map((session) => driver.open(session)));
    const runs = sessions.map((session) =>
      driver.make(session, input.replace("$", String(session))),
    );
    // Nobody comes to its end before all have begun.
    await admin.query("SELECT pg_advisory_lock(1)");
    driver.executor.dispatch(
      runs.map((run) => ({
        ...run,
        input: `DO 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); END'; ${run.input}`,
      })),
    );
    await Promise.all(sessions.map((session) => driver.blocked(session, "advisory")));
    await admin.query("SELECT pg_advisory_unlock(1)");
    const pids = sessions.map((session) => driver.backend(session).pid);
    await waitForRow(
      admin,
      `SELECT FROM pg_stat_activity WHERE pid = ANY ($1) AND state = 'idle' AND query ~ 'DISCARD|reset'
       HAVING count(*) = ${count}`,
      [pids],
    );
    for (let written = 1; written <= count; written += 1) {
      await driver.heard("results", () => driver.large().length >= written);
      assert.equal(driver.large().length, written);
      driver.executor.written();
    }
    assert.ok(storedInMemory().peak > memoryShare - 2 * mebi);
    assert.ok(storedInMemory().peak <= memoryShare);
    assert.equal(storedInMemory().held, 0);
    for (const run of runs) {
      const output = driver.large().find(({ id }) => id === run.id)?.output ?? "";
      assert.equal(output.length, "DO\n".length + 6 * mebi - 1);
      assert.equal(output.replaceAll(String(run.session), "").trim(), "DO");
    }
    assert.deepEqual(await driver.run(1, "SELECT 1").then(({ output }) => output), "1");
  });
}

test("what a session says after its large output stays behind it", async () => {
  const driver = new SlowManager(database.target, admin);
  await Promise.all([driver.open(1), driver.open(2)]);
  const large = "SELECT repeat('x', 2000000)";
  const runs = [driver.make(1, large), driver.make(2, large), driver.make(2, "SELECT 'behind'")];
  driver.executor.dispatch(runs.slice(0, 1));
  await driver.result(runs[0]!.id);
  driver.executor.dispatch(runs.slice(1));
  driver.executor.close([1, 2]);
  await driver.heard("closed", ({ session }) => session === 1);
  await waitForRow(admin, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [
    driver.backend(2).pid,
  ]);
  assert.equal(driver.results().length, 1);
  driver.executor.written();
  await driver.heard("closed", ({ session }) => session === 2);
  assert.deepEqual(
    driver.results().map(({ id }) => id),
    runs.map(({ id }) => id),
  );
});

test("what a session says of a recall stays behind its large output and what it returns", async () => {
  const driver = new SlowManager(database.target, admin);
  await Promise.all([driver.open(1), driver.open(2)]);
  const large = "SELECT repeat('x', 2000000)";
  const [before, held] = [driver.make(1, large), driver.make(2, large)];
  // Its own transaction keeps it from the wire until what is before it has come out.
  const front = driver.make(2, "BEGIN; SELECT pg_advisory_lock(2)");
  const waiting = driver.make(2, "SELECT 'behind'");
  await admin.query("SELECT pg_advisory_lock(2)");
  driver.executor.dispatch([before]);
  await driver.result(before.id);
  driver.executor.dispatch([held, front, waiting]);
  await driver.blocked(2, "pg_advisory_lock");
  driver.executor.recall([
    { session: 2, ids: [waiting.id], behind: null },
    { session: 1, ids: [], behind: null },
  ]);
  await driver.heard("recalled", ({ session }) => session === 1);
  driver.executor.written();
  await driver.heard("recalled", ({ session }) => session === 2);
  const said = driver.messages.flatMap((message) => {
    if (message.type === "results") return message.results.map(({ id }) => id);
    return message.type === "recalled" ? [`recall of ${message.session}`] : [];
  });
  assert.deepEqual(said, [before.id, "recall of 1", held.id, waiting.id, "recall of 2"]);
  await admin.query("SELECT pg_advisory_unlock(2)");
});

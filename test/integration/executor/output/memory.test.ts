import assert from "node:assert/strict";
import { maxMemoryBytes, spillBufferMemory } from "../../../../src/shared/spillBuffer.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver, type EndedResult } from "../../../support/executorDriver.js";
import { test } from "../../../support/limitedTest.js";
import { waitForRow } from "../../../support/tasks.js";

const mebi = 1 << 20;
const database = await createDatabase();
const admin = await database.connect();

/** Stands in for a manager that is slow to write large outputs: the test calls `largeOutputWritten` itself. */
class SlowManager extends ExecutorDriver {
  override readonly acknowledgesLargeOutputs = false;

  large(): EndedResult[] {
    return this.results().flatMap((each) => (each.outcome === "ended" ? [each] : []));
  }
}

const count = 8;
const outputs = [
  ["in many rows", `SELECT repeat('$', 1048575) FROM generate_series(1, 6)`],
  ["in one value", `SELECT repeat('$', 6291455)`],
] as const;

for (const [how, input] of outputs) {
  test(`output larger than the memory limit, ${how}, is delivered whole, one at a time`, async () => {
    const driver = new SlowManager(database.target, admin);
    const sessions = Array.from({ length: count }, (_, index) => index + 1);
    await Promise.all(sessions.map((session) => driver.open(session)));
    const runs = sessions.map((session) => driver.makeRun(session, input.replace("$", String(session))));
    // The lock keeps every run from ending before all runs have started.
    await admin.query("SELECT pg_advisory_lock(1)");
    driver.executor.dispatch(
      runs.map((run) => ({
        ...run,
        input: `DO 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); END'; ${run.input}`,
      })),
    );
    await Promise.all(sessions.map((session) => driver.untilBlocked(session, "advisory")));
    await admin.query("SELECT pg_advisory_unlock(1)");
    const pids = sessions.map((session) => driver.backend(session).pid);
    await waitForRow(
      admin,
      `SELECT FROM pg_stat_activity WHERE pid = ANY ($1) AND state = 'idle' AND query ~ 'DISCARD|reset'
       HAVING count(*) = ${count}`,
      [pids],
    );
    for (let written = 1; written <= count; written += 1) {
      await driver.message("results", () => driver.large().length >= written);
      assert.equal(driver.large().length, written);
      driver.executor.receive({ type: "largeOutputWritten" });
    }
    assert.ok(spillBufferMemory().peak > maxMemoryBytes - 2 * mebi);
    assert.ok(spillBufferMemory().peak <= maxMemoryBytes);
    assert.equal(spillBufferMemory().used, 0);
    for (const run of runs) {
      const output = driver.large().find(({ id }) => id === run.id)?.output ?? "";
      assert.equal(output.length, "DO\n".length + 6 * mebi - 1);
      assert.equal(output.replaceAll(String(run.session), "").trim(), "DO");
    }
    assert.deepEqual(await driver.run(1, "SELECT 1").then(({ output }) => output), "1");
  });
}

test("a session's later messages follow its large output", async () => {
  const driver = new SlowManager(database.target, admin);
  await Promise.all([driver.open(1), driver.open(2)]);
  const large = "SELECT repeat('x', 2000000)";
  const runs = [driver.makeRun(1, large), driver.makeRun(2, large), driver.makeRun(2, "SELECT 'next'")];
  driver.executor.dispatch(runs.slice(0, 1));
  await driver.result(runs[0]!.id);
  driver.executor.dispatch(runs.slice(1));
  driver.executor.receive({ type: "close", sessions: [1, 2] });
  await driver.message("closed", ({ session }) => session === 1);
  await waitForRow(admin, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [
    driver.backend(2).pid,
  ]);
  assert.equal(driver.results().length, 1);
  driver.executor.receive({ type: "largeOutputWritten" });
  await driver.message("closed", ({ session }) => session === 2);
  assert.deepEqual(
    driver.results().map(({ id }) => id),
    runs.map(({ id }) => id),
  );
});

test("a session's answer to a recall follows its large output and the released runs", async () => {
  const driver = new SlowManager(database.target, admin);
  await Promise.all([driver.open(1), driver.open(2)]);
  const large = "SELECT repeat('x', 2000000)";
  const [firstLarge, secondLarge] = [driver.makeRun(1, large), driver.makeRun(2, large)];
  // An input with a transaction of its own is not pipelined behind another run.
  const current = driver.makeRun(2, "BEGIN; SELECT pg_advisory_lock(2)");
  const queued = driver.makeRun(2, "SELECT 'next'");
  await admin.query("SELECT pg_advisory_lock(2)");
  driver.executor.dispatch([firstLarge]);
  await driver.result(firstLarge.id);
  driver.executor.dispatch([secondLarge, current, queued]);
  await driver.untilBlocked(2, "pg_advisory_lock");
  driver.executor.receive({
    type: "recall",
    runs: [
      { session: 2, ids: [queued.id], queuedBehind: null },
      { session: 1, ids: [], queuedBehind: null },
    ],
  });
  await driver.message("recalled", ({ session }) => session === 1);
  driver.executor.receive({ type: "largeOutputWritten" });
  await driver.message("recalled", ({ session }) => session === 2);
  const order = driver.messages.flatMap((message) => {
    if (message.type === "results") return message.results.map(({ id }) => id);
    return message.type === "recalled" ? [`recall of ${message.session}`] : [];
  });
  assert.deepEqual(order, [firstLarge.id, "recall of 1", secondLarge.id, queued.id, "recall of 2"]);
  await admin.query("SELECT pg_advisory_unlock(2)");
});

import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { statesOf, times } from "../support/tasks.js";
import { serverMajor } from "../support/database.js";

const { pgTask, client, tasks } = await serve();
/** PostgreSQL supports infinite intervals from version 17 on. */
const hasInfinity = (await serverMajor()) >= 17;

/** Asserts that other tasks still run, without warnings or errors in the log. */
async function othersRun(): Promise<void> {
  assert.equal((await tasks.run("SELECT 1", { group: "others" })).state, "DONE");
  const errors = pgTask.lines.filter((line) => ["warn", "error", "fatal"].includes(line.level));
  assert.deepEqual(errors, []);
}

const endlessIntervals = ["290000 years", "100000000 years", ...(hasInfinity ? ["infinity"] : [])];

for (const interval of endlessIntervals) {
  for (const column of ["active", "timeout", "live"]) {
    test(`a task whose ${column} is ${interval} runs`, async () => {
      assert.equal((await tasks.run("SELECT pg_sleep(0.05)", { [column]: interval, group: column })).state, "DONE");
      await othersRun();
    });
  }
}

test("a task planned for -infinity is GONE at once", async () => {
  assert.equal((await tasks.run("SELECT 1", { plan: "-infinity" })).state, "GONE");
  await othersRun();
});

test("a task planned for infinity waits forever", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
  await othersRun();
  assert.equal((await tasks.row(id)).state, "PLAN");
  await client.query("DELETE FROM task WHERE id = $1", [id]);
});

for (const drift of [true, false]) {
  for (const repeat of endlessIntervals) {
    test(`a task that repeats after ${repeat} ${drift ? "with" : "without"} drift ends, and its successor is planned for infinity`, async () => {
      const row = await tasks.run("SELECT 1", { repeat, drift, group: "repeating" });
      assert.equal(row.state, "DONE");
      assert.ok(await tasks.successorHolds(row.id, "n.plan = 'infinity'"));
      await othersRun();
    });
  }

  test(`the successor of a task planned for -infinity is planned from its stop, ${drift ? "with" : "without"} drift`, async () => {
    const row = await tasks.run("SELECT 1", { plan: "-infinity", repeat: "1 year", drift });
    assert.equal(row.state, "GONE");
    assert.ok(await tasks.successorHolds(row.id, "n.plan = t.stop + interval '1 year'"));
    await othersRun();
  });
}

test("tasks with a pause that are planned for -infinity run one after another", async () => {
  const task = { input: "SELECT pg_sleep(0.02)", max: -50, plan: "-infinity", group: "pausing" };
  assert.deepEqual(statesOf(await tasks.runTogether(...times(3, task))), ["DONE", "DONE", "DONE"]);
  await othersRun();
});

test("a task with the largest and one with the smallest max run", async () => {
  for (const max of [2_147_483_647, -2_147_483_648]) {
    assert.equal((await tasks.run("SELECT 1", { max, group: `max ${max}` })).state, "DONE");
  }
  const later = await tasks.add("SELECT 1", { max: -2_147_483_648, group: "m" });
  await tasks.ended(later);
  await othersRun();
});

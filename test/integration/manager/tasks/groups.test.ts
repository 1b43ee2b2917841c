import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { maxConcurrent, only, type NewTask } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, client, tasks } = await serve({ "pg_task.sleep": 200, "pg_conf.max": 8 });

/**
 * Inserts tasks in one transaction, so that all become due at the same time and their order does not depend on the
 * inserts.
 */
async function together(count: number, task: (index: number) => NewTask): Promise<string[]> {
  await client.query("BEGIN");
  const ids = await tasks.insert(...Array.from({ length: count }, (_, index) => task(index)));
  await client.query("COMMIT");
  return ids;
}

test("tasks of a group with max 0 run one after another, in the order of their ids", async () => {
  const ids = await together(20, (index) => ({
    input: "SELECT pg_sleep(0.005)",
    group: "one",
    data: `${index}`,
  }));
  const rows = await tasks.ended(...ids);
  assert.deepEqual(new Set(rows.map((row) => row.state)), new Set(["DONE"]));
  for (const [index, row] of rows.entries()) {
    const before = rows[index - 1];
    if (before !== undefined) assert.ok((before.stop ?? "") <= (row.start ?? ""), `task ${index}`);
  }
});

test("ten tasks with max 1 run two at a time", async () => {
  const ids = await together(10, () => ({ input: "SELECT pg_sleep(0.1)", group: "two", max: 1 }));
  assert.equal(maxConcurrent(await tasks.ended(...ids)), 2);
});

test("a task with a larger max starts beside and ahead of the others of its group", async () => {
  const first = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "wide", max: 0 });
  const [running] = await tasks.until(first, (row) => row.state === "WORK");
  const [behind = ""] = await tasks.insert({ input: "SELECT 1", group: "wide", max: 0 });
  const ahead = await tasks.run("SELECT 2", { group: "wide", max: 1 });
  assert.equal(ahead.state, "DONE");
  // It may already be queued behind the running task.
  assert.equal((await tasks.row(behind)).start, null);
  await client.query("SELECT pg_cancel_backend($1)", [running?.pid]);
  const [last] = await tasks.ended(behind);
  assert.equal(last?.state, "DONE");
});

test("a group at its limit delays no other group", async () => {
  const first = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "full" });
  const [running] = await tasks.until(first, (row) => row.state === "WORK");
  const [waiting = ""] = await tasks.insert({ input: "SELECT 1", group: "full" });
  assert.equal((await tasks.run("SELECT 2", { group: "other" })).state, "DONE");
  // It may already be queued behind the running task.
  assert.equal((await tasks.row(waiting)).start, null);
  await client.query("SELECT pg_cancel_backend($1)", [running?.pid]);
  await tasks.ended(waiting);
});

test("a task that moves to another group is not delayed by its old one", async () => {
  const first = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "crowded" });
  const [running] = await tasks.until(first, (row) => row.state === "WORK");
  const moved = await tasks.insert({ input: "SELECT 1", group: "crowded" });
  await client.query(`UPDATE task SET "group" = 'empty' WHERE id = $1`, moved);
  assert.equal(only(await tasks.ended(...moved)).state, "DONE");
  await client.query("SELECT pg_cancel_backend($1)", [running?.pid]);
});

test("no more sessions run than pg_conf.max, and every task runs", async () => {
  const ids = await together(24, (index) => ({
    input: "SELECT pg_sleep(0.05)",
    group: `g${index}`,
  }));
  const rows = await tasks.ended(...ids);
  assert.deepEqual(new Set(rows.map((row) => row.state)), new Set(["DONE"]));
  assert.equal(new Set(rows.map((row) => row.pid)).size <= 8, true);
  assert.equal(maxConcurrent(rows) <= 8, true);
  const said = await pgTask.logged((line) => line.msg.startsWith("more sessions wanted than granted"));
  assert.equal(said["pg_conf.max"], 8);
});

import assert from "node:assert/strict";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { maxConcurrent, type TaskRow, inOrderOfStart, microseconds, times } from "../support/tasks.js";

const { database, client, tasks } = await serve({ "pg_task.delete": false });

/** Asserts that each of these tasks started at least `ms` after the one before it. */
function assertGaps(rows: readonly TaskRow[], ms: number): void {
  const starts = rows.map(({ start }) => microseconds(start)).toSorted((a, b) => a - b);
  for (const [index, start] of starts.entries()) {
    const sinceMs = (start - (starts[index - 1] ?? -Infinity)) / 1000;
    assert.ok(sinceMs >= ms, `start ${index} came ${sinceMs} ms after the one before it`);
  }
}

test("§4 two starts of a group are at least gap apart, in the order of the tasks", async () => {
  const ids = await tasks.together(...times(6, { input: "SELECT 1", group: "gap", max: 9, gap: "0.1 s" }));
  const rows = await tasks.ended(...ids);
  assert.deepEqual([...new Set(rows.map(({ state }) => state))], ["DONE"]);
  assertGaps(rows, 100);
  assert.deepEqual(
    inOrderOfStart(rows).map(({ id }) => id),
    ids,
  );
});

test("§4 runs with a gap may overlap, up to max + 1 at once", async () => {
  const rows = await tasks.runTogether(
    ...times(5, { input: "SELECT pg_sleep(1.5)", group: "overlapping", max: 2, gap: "50 ms" }),
  );
  assertGaps(rows, 50);
  assert.equal(maxConcurrent(rows), 3);
});

test("§4 with max 0, the next task waits for the end and for the gap", async () => {
  const rows = await tasks.runTogether(...times(3, { input: "SELECT pg_sleep(0.1)", group: "serial", gap: "0.25 s" }));
  assertGaps(rows, 250);
  assert.equal(maxConcurrent(rows), 1);
});

test("§4 with max < 0, the pause after the end and the gap after the start both hold", async () => {
  const rows = await tasks.runTogether(...times(3, { input: "SELECT 1", group: "pausing", max: -150, gap: "0.1 s" }));
  assertGaps(rows, 100);
  const slow = await tasks.together(
    ...times(3, { input: "SELECT 1", group: "pausing briefly", max: -20, gap: "0.2 s" }),
  );
  assertGaps(await tasks.ended(...slow), 200);
});

test("§4 each task waits by its own gap", async () => {
  const [first = "", second = "", third = ""] = await tasks.together(
    { input: "SELECT 1", group: "own", gap: "10 ms" },
    { input: "SELECT 1", group: "own", gap: "0.3 s" },
    { input: "SELECT 1", group: "own", gap: "50 ms" },
  );
  const [one, two, three] = await tasks.ended(first, second, third);
  assert.ok(one !== undefined && two !== undefined && three !== undefined);
  assertGaps([one, two], 300);
  assertGaps([two, three], 50);
});

test("§4 a task without a gap counts as a start, is not delayed itself, and does not overtake", async () => {
  const [, , before, gapped, after] = await tasks.runTogether(
    { input: "SELECT 1", group: "mixed", max: 9, gap: "10 ms" },
    { input: "SELECT 1", group: "mixed", max: 9 },
    { input: "SELECT 1", group: "mixed", max: 9 },
    { input: "SELECT 1", group: "mixed", max: 9, gap: "0.25 s" },
    { input: "SELECT 1", group: "mixed", max: 9 },
  );
  assert.ok(before !== undefined && gapped !== undefined && after !== undefined);
  // The last one need not start after the one with the gap, because both start in one claim, in two sessions.
  assertGaps([before, gapped], 245);
  assertGaps([before, after], 245);
});

test("§4 a task with a larger max comes before the one that waits for its gap", async () => {
  await tasks.run("SELECT 1", { group: "larger", max: 1, gap: "1 us" });
  const waiting = await tasks.add("SELECT 1", { group: "larger", max: 1, gap: "1 hour" });
  await tasks.run("SELECT 1", { group: "larger", max: 2 });
  assert.equal((await tasks.row(waiting)).state, "PLAN");
});

test("§4 groups that wait for their gaps delay no other group", async () => {
  const waiting = await tasks.together(
    ...Array.from({ length: 20 }, (_, index) => ({ input: "SELECT 1", group: `waits ${index}`, gap: "1 hour" })),
  );
  await tasks.run("SELECT 1", { group: "does not wait" });
  for (const id of waiting) assert.equal((await tasks.row(id)).state, "PLAN");
});

test("§4 the groups of different connections in remote have gaps of their own", async () => {
  const { host, port, user, database: name } = database.target;
  const remote = `host=${host} port=${port} user=${user} dbname=${name}`;
  const local = await tasks.together(...times(2, { input: "SELECT 1", group: "place", gap: "0.2 s" }));
  const elsewhere = await tasks.together(...times(2, { input: "SELECT 1", group: "place", gap: "0.2 s", remote }));
  assertGaps(await tasks.ended(...local), 200);
  assertGaps(await tasks.ended(...elsewhere), 200);
});

test("§4 a task that waits for its gap starts at once when its gap is taken away", async () => {
  await tasks.run("SELECT 1", { group: "changed", gap: "1 us" });
  const id = await tasks.add("SELECT 1", { group: "changed", gap: "1 hour" });
  await client.query("UPDATE task SET gap = '0' WHERE id = $1", [id]);
  assert.equal((await tasks.end(id)).state, "DONE");
});

test("§4 the tasks behind one that waits for its gap start when that one is deleted", async () => {
  await tasks.run("SELECT 1", { group: "deleted", gap: "1 us" });
  const waiting = await tasks.add("SELECT 1", { group: "deleted", gap: "1 hour" });
  const behind = await tasks.add("SELECT 1", { group: "deleted" });
  await client.query("DELETE FROM task WHERE id = $1", [waiting]);
  assert.equal((await tasks.end(behind)).state, "DONE");
});

test("§4 after a pause of the group, tasks with a gap do not start in a burst", async () => {
  const group = "resumed";
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
  const ids = await tasks.together(...times(4, { input: "SELECT 1", group, max: 9, gap: "0.1 s" }));
  await tasks.run("SELECT 1", { group: "meanwhile" });
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
  assertGaps(await tasks.ended(...ids), 100);
});

test("§4 a repeating task keeps its gap", async () => {
  const id = await tasks.add("SELECT 1", { group: "repeating", repeat: "1 ms", gap: "0.1 s" });
  assert.ok(await tasks.successorHolds(id, "n.gap = '0.1 s'"));
  await client.query(
    `UPDATE task SET state = 'STOP' WHERE "group" = 'repeating' AND state IN ('PLAN', 'TAKE', 'WORK')`,
  );
});

test("§4 rows whose gap is null wait for none", async () => {
  const ids = await tasks.together(...times(3, { input: "SELECT 1", group: "null", gap: null }));
  assert.deepEqual([...new Set((await tasks.ended(...ids)).map(({ state }) => state))], ["DONE"]);
});

test("§2 pg_task.gap has its documented effect", async () => {
  await client.query(`ALTER DATABASE ${identifier(database.target.database)} SET pg_task.gap = '0.2 s'`);
  const producer = await database.connect();
  const { rows } = await producer.query<{ id: string; gap: string }>(
    `INSERT INTO task (input, "group", max) SELECT 'SELECT 1', 'parameter', 9 FROM generate_series(1, 3) RETURNING id, gap::text AS gap`,
  );
  assert.deepEqual([...new Set(rows.map(({ gap }) => gap))], ["00:00:00.2"]);
  assertGaps(await tasks.ended(...rows.map(({ id }) => id)), 200);
  await client.query(`ALTER DATABASE ${identifier(database.target.database)} RESET pg_task.gap`);
});

import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { prune } from "../../../../src/manager/upkeep/prune.sql.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";

const { database, user, manager, table } = await openTable();
const other = await database.connect();

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

async function insertEnded(count: number, keep = "1 hour"): Promise<void> {
  await user.query(
    `INSERT INTO task (input, state, stop, keep)
     SELECT 'SELECT 1', 'DONE', now() - interval '1 day', $2 FROM generate_series(1, $1)`,
    [count, keep],
  );
}

async function remainingIds(): Promise<string[]> {
  const { rows } = await user.query<{ id: string }>("SELECT id FROM task ORDER BY id");
  return rows.map(({ id }) => id);
}

/** Runs one round. Returns how many rows each step deleted. */
async function pruneRound(limit: number): Promise<number[]> {
  const steps: number[] = [];
  let from = "0";
  do {
    const step = await prune(manager, table, from, limit);
    steps.push(step.deleted);
    from = step.next;
  } while (from !== "0");
  return steps;
}

test("one step deletes at most `limit` rows, and the next continues after them", async () => {
  await insertEnded(7);
  const steps = await pruneRound(3);
  assert.ok(
    steps.every((deleted) => deleted <= 3),
    steps.join(),
  );
  assert.deepEqual([steps.reduce((sum, deleted) => sum + deleted, 0), await remainingIds()], [7, []]);
});

test("one step reads at most a thousand rows", async () => {
  await insertEnded(2500, "1 year");
  await insertEnded(1);
  assert.deepEqual(await pruneRound(100), [0, 0, 1]);
});

test("a locked row is skipped and deleted in a later round", async () => {
  await insertEnded(3);
  await other.query("BEGIN");
  await other.query("SELECT FROM task WHERE id = 2 FOR KEY SHARE");
  await pruneRound(100);
  assert.deepEqual(await remainingIds(), ["2"]);
  await other.query("COMMIT");
  await pruneRound(100);
  assert.deepEqual(await remainingIds(), []);
});

test("only finished rows are deleted, and none that are kept forever", async () => {
  await insertEnded(1);
  await insertEnded(1, "0");
  await insertEnded(1, "2 days");
  await insertEnded(1, "2000 years");
  await user.query(
    `INSERT INTO task (input, state, stop, keep, ready, owner, plan)
     SELECT 'SELECT 1', state::state, now() - interval '1 day', '1 hour', ready, owner, 'infinity'
     FROM (VALUES ('PLAN', false, NULL), ('TAKE', NULL, '1 a'), ('WORK', NULL, '1 a')) AS v(state, ready, owner)`,
  );
  await user.query("INSERT INTO task (input, state, keep) VALUES ('SELECT 1', 'STOP', '1 hour') RETURNING id");
  await pruneRound(100);
  assert.deepEqual(await remainingIds(), ["2", "3", "4", "5", "6", "7", "8"]);
});

test("returns the time until the next row may be deleted", async () => {
  await insertEnded(1, "25 hours");
  await insertEnded(1, "26 hours");
  const { dueMs } = await prune(manager, table, "0", 100);
  assert.ok(dueMs !== null && dueMs > 0 && dueMs <= 3_600_000, String(dueMs));
});

import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { prune } from "../../../../src/manager/upkeep/prune.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";

const database = await createDatabase();
const user = await database.connect();
const other = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

/** Tasks that ended a day ago, to be kept for so long. */
async function ended(count: number, keep = "1 hour"): Promise<void> {
  await user.query(
    `INSERT INTO task (input, state, stop, keep)
     SELECT 'SELECT 1', 'DONE', now() - interval '1 day', $2 FROM generate_series(1, $1)`,
    [count, keep],
  );
}

async function left(): Promise<string[]> {
  const { rows } = await user.query<{ id: string }>("SELECT id FROM task ORDER BY id");
  return rows.map(({ id }) => id);
}

/** How many rows each step of one round removes. */
async function round(limit: number): Promise<number[]> {
  const steps: number[] = [];
  let from = "0";
  do {
    const step = await prune(manager, table, from, limit);
    steps.push(step.deleted);
    from = step.next;
  } while (from !== "0");
  return steps;
}

test("one step removes no more rows than it may, and the next goes on from there", async () => {
  await ended(7);
  const steps = await round(3);
  assert.ok(
    steps.every((deleted) => deleted <= 3),
    steps.join(),
  );
  assert.deepEqual([steps.reduce((sum, deleted) => sum + deleted, 0), await left()], [7, []]);
});

test("one step looks at no more than a thousand rows, however many are to be kept", async () => {
  await ended(2500, "1 year");
  await ended(1);
  assert.deepEqual(await round(100), [0, 0, 1]);
});

test("a row that somebody has locked is not waited for, and is removed in a later round", async () => {
  await ended(3);
  await other.query("BEGIN");
  await other.query("SELECT FROM task WHERE id = 2 FOR KEY SHARE");
  await round(100);
  assert.deepEqual(await left(), ["2"]);
  await other.query("COMMIT");
  await round(100);
  assert.deepEqual(await left(), []);
});

test("only what has ended is removed, and never what is kept for ever", async () => {
  await ended(1);
  await ended(1, "0");
  await ended(1, "2 days");
  await ended(1, "2000 years");
  await user.query(
    `INSERT INTO task (input, state, stop, keep, ready, owner, plan)
     SELECT 'SELECT 1', state::state, now() - interval '1 day', '1 hour', ready, owner, 'infinity'
     FROM (VALUES ('PLAN', false, NULL), ('TAKE', NULL, '1 a'), ('WORK', NULL, '1 a')) AS v(state, ready, owner)`,
  );
  await user.query(
    "INSERT INTO task (input, state, keep) VALUES ('SELECT 1', 'STOP', '1 hour') RETURNING id",
  );
  await round(100);
  assert.deepEqual(await left(), ["2", "3", "4", "5", "6", "7", "8"]);
});

test("it tells when the next row may go", async () => {
  await ended(1, "25 hours");
  await ended(1, "26 hours");
  const { dueMs } = await prune(manager, table, "0", 100);
  assert.ok(dueMs !== null && dueMs > 0 && dueMs <= 3_600_000, String(dueMs));
});

import assert from "node:assert/strict";
import * as fc from "fast-check";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import type { OwnedResult } from "../../../../src/manager/model/tasks.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { completePlain, isPlainResult } from "../../../../src/manager/results/completePlain.sql.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";
import { retryPolicy } from "../../../support/retryPolicy.js";

const { database, user, manager, table } = await openTable();
const holder = await database.connect();
const shape = await readColumnSet(manager, table);

interface Row {
  readonly state: string;
  readonly owner: string | null;
  readonly repeat: string;
  readonly max: number;
  readonly delete: boolean;
}

const row: fc.Arbitrary<Row> = fc.record({
  state: fc.constantFrom("TAKE", "WORK", "WORK", "WORK", "STOP", "PLAN", "DONE"),
  owner: fc.constantFrom("me", "me", "me", "other", null),
  repeat: fc.constantFrom("0", "0", "0", "1 day"),
  // The last value is a pause so long that it cannot end during the test.
  max: fc.constantFrom(0, 0, 0, 3, -2_000_000_000),
  delete: fc.boolean(),
});

const what = fc.record({
  output: fc.constantFrom("out", "", null),
  error: fc.constantFrom(null, null, "ERROR:  no"),
  stop: fc.constantFrom("2026-01-02T03:04:06.000002Z", null),
  committed: fc.boolean(),
});

function resultOf(id: number, more: Partial<OwnedResult>): OwnedResult {
  return {
    outcome: "ended",
    session: 1,
    id: String(id),
    owner: "me",
    start: "2026-01-02T03:04:05.000001Z",
    stop: null,
    output: null,
    error: null,
    sqlstate: null,
    committed: false,
    isPlain: true,
    ...more,
  };
}

async function fill(rows: readonly Row[]): Promise<void> {
  await user.query("TRUNCATE task RESTART IDENTITY");
  await user.query(
    `INSERT INTO task (input, state, owner, repeat, max, delete, plan, take)
     SELECT 'SELECT 1', s::state, o, r::interval, m, d, '2026-01-01', now()
     FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::boolean[]) WITH ORDINALITY AS t(s, o, r, m, d, place)
     ORDER BY place`,
    [
      rows.map(({ state }) => state),
      rows.map(({ owner }) => owner),
      rows.map(({ repeat }) => repeat),
      rows.map(({ max }) => max),
      rows.map((each) => each.delete),
    ],
  );
}

/**
 * Calls `work`, and returns the table's content afterwards. The changes are then rolled back. All calls are in one
 * transaction, so `now()` is the same for all.
 */
async function after(work: () => Promise<void>): Promise<unknown[]> {
  await manager.query("SAVEPOINT before");
  try {
    await work();
    const { rows } = await manager.query<{ task: unknown }>(
      `SELECT to_jsonb(t) - '{id,take,created}'::text[] AS task FROM public.task AS t ORDER BY t.id > 1000, t.id`,
    );
    return rows.map(({ task }) => task);
  } finally {
    await manager.query("ROLLBACK TO before");
  }
}

test("completePlain followed by completeFull equals completeFull alone", async () => {
  const situation = fc.array(fc.record({ row, what }), { minLength: 1, maxLength: 10 });
  await fc.assert(
    fc.asyncProperty(situation, async (each) => {
      await fill(each.map((one) => one.row));
      const results = each.map((one, index) => resultOf(index + 1, one.what));
      await manager.query("BEGIN");
      try {
        const whole = await after(async () => {
          await completeFull(manager, table, shape, results, { retry: retryPolicy });
        });
        const parted = await after(async () => {
          const left = await completePlain(manager, table, results.filter(isPlainResult));
          const rest = results.filter((result) => !isPlainResult(result) || left.has(result.id));
          if (rest.length > 0) await completeFull(manager, table, shape, rest, { retry: retryPolicy });
        });
        assert.deepEqual(parted, whole);
      } finally {
        await manager.query("ROLLBACK");
      }
    }),
    { numRuns: 200, includeErrorInReport: true },
  );
});

test("skips results of repeating tasks and of rows with another owner", async () => {
  const plain = { state: "WORK", owner: "me", repeat: "0", max: 0, delete: true };
  await fill([plain, { ...plain, repeat: "1 day" }, { ...plain, owner: "other" }, plain]);
  const results = [1, 2, 3, 4].map((id) => resultOf(id, { output: "out" }));
  assert.deepEqual(await completePlain(manager, table, results), new Set(["2", "3"]));
  const { rows } = await user.query("SELECT state::text, output FROM task ORDER BY id");
  const [done, working] = [
    { state: "DONE", output: "out" },
    { state: "WORK", output: null },
  ];
  assert.deepEqual(rows, [done, working, working, done]);
});

test("writes nothing and fails while one of the rows is locked", async () => {
  const plain = { state: "WORK", owner: "me", repeat: "0", max: 0, delete: true };
  await fill([plain, plain, plain]);
  await holder.query("BEGIN; SELECT FROM task WHERE id = 2 FOR UPDATE");
  try {
    const results = [1, 2, 3].map((id) => resultOf(id, { output: "out" }));
    await assert.rejects(completePlain(manager, table, results), { code: "55P03" });
  } finally {
    await holder.query("ROLLBACK");
  }
  const { rows } = await user.query("SELECT FROM task WHERE state = 'WORK' AND output IS NULL");
  assert.equal(rows.length, 3);
});

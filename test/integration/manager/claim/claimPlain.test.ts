import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import * as fc from "fast-check";
import { claimFull, type ClaimRequest, type ClaimResult } from "../../../../src/manager/claim/claimFull.sql.js";
import { canBePlain, claimPlain } from "../../../../src/manager/claim/claimPlain.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { claimOf } from "../../../support/claims.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

const names = ["a", "b"];
const hashes = await Promise.all(
  names.map(async (name) => await user.query<{ h: number }>("SELECT hashtext($1) AS h", [name])),
);

/** A request for tasks that queue behind tasks of their groups, in two sessions for each group. */
function requestOf(slots: readonly number[], running: number): ClaimRequest {
  const groups = slots.map((count, group) => ({
    hash: hashes[group]?.rows[0]?.h ?? 0,
    running,
    max: 2_147_483_647,
    id: -(2n ** 63n),
    quietMs: Infinity,
    maxTasks: count,
    ownSlots: Array.from({ length: count }, (_, slot) => ({
      owner: `${group} ${slot % 2}`,
      pid: group,
      startsNow: false,
    })),
  }));
  return { groups, slots: [], dedicated: [], maxCandidates: 0, except: [] };
}

/** A request for one task of each group, the first of which starts at once, the other behind it. */
async function sharingRequest(running: number): Promise<ClaimRequest> {
  // The plain claim gives out the slots in the order of the request, the full claim in that of the tasks' priorities.
  const { rows } = await user.query<{ hash: number }>(`
    SELECT hash FROM (SELECT DISTINCT ON (hash) hash, greatest(max, 0) AS max, id FROM task WHERE ready ORDER BY hash, max DESC, id) AS h
    ORDER BY max DESC, id`);
  const groups = requestOf([1, 1], running).groups.map((group) => ({ ...group, ownSlots: null }));
  const place = ({ hash }: { readonly hash: number }): number => rows.findIndex((row) => row.hash === hash) >>> 0;
  const slots = [true, false].map((startsNow) => ({ owner: "shared", pid: 1, startsNow }));
  return { ...requestOf([], 0), groups: groups.toSorted((a, b) => place(a) - place(b)), slots, maxCandidates: 2 };
}

interface Outcome {
  readonly result: ClaimResult | null;
  readonly rows: unknown;
}

/** Claims in a transaction that is rolled back afterwards. */
async function outcome(claim: () => Promise<ClaimResult | null>): Promise<Outcome> {
  await manager.query("BEGIN");
  try {
    const result = await claim();
    const { rows } = await manager.query(
      "SELECT to_jsonb(t) - '{take,start}'::text[] AS task FROM public.task AS t ORDER BY id",
    );
    return { result, rows };
  } finally {
    await manager.query("ROLLBACK");
  }
}

const claimedOf = (result: ClaimResult | null) =>
  result?.claimed
    .map(({ id, owner, input, startsNow }) => ({ id, owner, input, startsNow }))
    .toSorted((a, b) => Number(a.id) - Number(b.id));

const headsOf = (result: ClaimResult | null) => result?.heads.toSorted((a, b) => a.hash - b.hash);

/** Columns of tasks that only a full claim can handle, and of tasks that are not due. */
const special: readonly Record<string, string | number>[] = [
  { count: 1 },
  { gap: "1 min" },
  { key: "k" },
  { plan: "2001-01-01", active: "1 s" },
  { max: -5 },
];
const others: readonly Record<string, string | number>[] = [
  ...Array.from({ length: 30 }, () => ({})),
  { plan: "infinity" },
  { state: "STOP" },
];
const row = fc.record({
  group: fc.constantFrom(...names),
  max: fc.integer({ min: 0, max: 4 }),
  more: fc.constantFrom(...others, ...special),
});

test("a plain claim does what a full claim does, or nothing", async () => {
  const seen = { claimed: 0, refused: 0 };
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { minLength: 1, maxLength: 14 }),
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 2, maxLength: 2 }),
      fc.integer({ min: 1, max: 3 }),
      fc.boolean(),
      fc.boolean(),
      async (rows, slots, running, paused, shares) => {
        await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
        for (const { more, ...columns } of rows) {
          const values = Object.entries({ input: "SELECT 1", ...columns, ...more });
          const list = values.map(([name]) => `"${name}"`).join();
          const parameters = values.map((_, at) => `$${at + 1}`).join();
          await user.query(
            `INSERT INTO task (${list}) VALUES (${parameters}) ON CONFLICT DO NOTHING`,
            values.map(([, value]) => value),
          );
        }
        if (paused) await user.query(`INSERT INTO task_pause ("group") VALUES ('b')`);
        const request = shares ? await sharingRequest(running) : requestOf(slots, running);
        const limit = shares ? running : running - 1;
        const full = await outcome(() => claimFull(manager, table, request));
        const queued = await outcome(() => claimPlain(manager, table, request));
        if (queued.result === null) {
          seen.refused += 1;
          const isSpecial = ({ group, more, max }: (typeof rows)[number]) =>
            special.includes(more) || (paused && group === "b") || max < limit;
          assert.ok(rows.some(isSpecial) || full.result?.claimed.length === 0);
          return;
        }
        seen.claimed += 1;
        assert.deepEqual(claimedOf(queued.result), claimedOf(full.result));
        assert.deepEqual(headsOf(queued.result), headsOf(full.result));
        assert.deepEqual(queued.rows, full.rows);
      },
    ),
    { numRuns: 300 },
  );
  assert.ok(seen.claimed > 20 && seen.refused > 20, JSON.stringify(seen));
});

test("a locked row makes a plain claim give up, and it has claimed nothing", async () => {
  await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
  await user.query(`INSERT INTO task ("group", max, input) SELECT 'a', 4, 'SELECT 1' FROM generate_series(1, 3)`);
  await user.query("BEGIN");
  await user.query("SELECT FROM task WHERE id = 2 FOR UPDATE");
  await assert.rejects(claimPlain(manager, table, requestOf([3, 1], 1)), { code: "55P03" });
  await user.query("ROLLBACK");
  const { rows } = await user.query("SELECT FROM task WHERE state = 'PLAN'");
  assert.equal(rows.length, 3);
});

test("a task that becomes exclusive while a plain claim waits for its row is the next head", async () => {
  for (const changed of [1, 2]) {
    let claimed: ClaimResult | null = null;
    // The claim waits for the row only briefly, so the change may come too early or too late.
    while (claimed === null) {
      await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
      await user.query(`INSERT INTO task ("group", max, input) SELECT 'a', 4, 'SELECT 1' FROM generate_series(1, 4)`);
      await user.query("BEGIN");
      await user.query("UPDATE task SET count = 1 WHERE id = $1", [changed]);
      const claiming = claimPlain(manager, table, requestOf([3, 1], 1)).catch(() => null);
      await setTimeout(2);
      await user.query("COMMIT");
      claimed = await claiming;
    }
    const missing = String(changed);
    assert.deepEqual(
      claimedOf(claimed)?.map(({ id }) => id),
      ["1", "2", "3"].filter((id) => id !== missing),
    );
    const position = changed === 1 ? { id: String(-(2n ** 63n)), max: 2_147_483_647 } : { id: missing, max: 4 };
    assert.deepEqual(headsOf(claimed), [
      { hash: hashes[0]?.rows[0]?.h, paused: false, gapMs: 0, exclusive: false, ...position },
    ]);
  }
});

test("only a request in which each task has its slot, with nothing to skip, can be plain", () => {
  const request = requestOf([2, 2], 1);
  assert.ok(canBePlain(request));
  assert.ok(!canBePlain({ ...request, except: ["1"] }));
  assert.ok(!canBePlain({ ...request, contended: ["1"] }));
  const sharing = claimOf(new Map([[1, 0]]), { sessions: 1 });
  assert.ok(canBePlain({ ...sharing, groups: sharing.groups.map((group) => ({ ...group, maxTasks: 1 })) }));
  assert.ok(!canBePlain({ ...sharing, groups: sharing.groups.map((group) => ({ ...group, maxTasks: 2 })) }));
  assert.ok(!canBePlain({ ...sharing, slots: [] }));
});

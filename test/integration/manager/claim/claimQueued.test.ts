import assert from "node:assert/strict";
import * as fc from "fast-check";
import { claimFull, type ClaimRequest } from "../../../../src/manager/claim/claimFull.sql.js";
import { claimQueued, isQueuedClaim } from "../../../../src/manager/claim/claimQueued.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";
import { stubClient } from "../../../support/stubClient.js";
import type { ClaimedTask } from "../../../../src/manager/model/tasks.js";

const database = await createDatabase();
const user = await database.connect();
const holder = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

const groups = ["a", "b", "c"];
const { rows: named } = await user.query<{ hash: number }>(
  `SELECT hashtext(g) AS hash FROM unnest($1::text[]) WITH ORDINALITY AS g(g, place) ORDER BY place`,
  [groups],
);
const hashes = named.map(({ hash }) => hash);

/**
 * Returns a claim request with these numbers of queue slots per group, in sessions that already have tasks of the
 * group.
 */
function requestOf(of: readonly { readonly running: number; readonly slots: number }[]): ClaimRequest {
  return {
    groups: of.map(({ running, slots }, group) => ({
      hash: hashes[group] ?? 0,
      running,
      max: 2_147_483_647,
      id: -(2n ** 63n),
      quietMs: Infinity,
      maxTasks: slots,
      ownSlots: Array.from({ length: slots }, (_, slot) => ({
        owner: `owner ${group} ${slot % 2}`,
        pid: 1000 + group,
        startsNow: false,
      })),
    })),
    slots: [],
    dedicated: [],
    maxCandidates: 0,
    except: [],
  };
}

/** Calls `work` in a transaction that is rolled back afterwards. */
async function undone<T>(work: () => Promise<T>): Promise<T> {
  await manager.query("BEGIN");
  try {
    return await work();
  } finally {
    await manager.query("ROLLBACK");
  }
}

const shown = async (): Promise<unknown[]> =>
  (await manager.query("SELECT to_jsonb(t) - 'take' AS task FROM public.task AS t ORDER BY id")).rows;

const withoutTime = (tasks: readonly ClaimedTask[]): ClaimedTask[] =>
  tasks.map((task) => ({ ...task, claimedAt: "", version: "" })).toSorted((a, b) => Number(a.id) - Number(b.id));

interface Row {
  readonly group: string;
  readonly max: number;
  readonly more: string;
}

/**
 * The rule in its simplest form: the first tasks of the group that need no special treatment, as many as there are
 * slots.
 */
function expectedOf(
  rows: readonly Row[],
  paused: string,
  group: string,
  { running, slots }: { readonly running: number; readonly slots: number },
): { readonly taken: number[]; readonly odd: boolean } {
  const due = rows
    .map(({ max, more, ...each }, index) => ({
      ...each,
      id: index + 1,
      max: more === "pausing" ? 0 : max,
      odd: !["", "timeout"].includes(more) || paused === "all" || paused === each.group,
      // The hash of a remote task differs from that of its group's name, so it belongs to another group.
      waits: !["later", "stopped", "remote"].includes(more),
    }))
    .filter((each) => each.group === group && each.waits)
    .toSorted((a, b) => b.max - a.max || a.id - b.id);
  const end = due.findIndex(({ max, odd }, index) => index === slots || odd || max < running - 1);
  const taken = due.slice(0, end === -1 ? due.length : end).map(({ id }) => id);
  return { taken, odd: taken.length === 0 || due[taken.length]?.odd === true };
}

const row = fc.record({
  group: fc.constantFrom(...groups),
  max: fc.integer({ min: 0, max: 4 }),
  more: fc.constantFrom(
    ...Array<string>(30).fill(""),
    "later",
    "later",
    "stopped",
    "timeout",
    "count",
    "live",
    "remote",
    "late",
    "pausing",
  ),
  input: fc.constantFrom("SELECT 1", "SELECT max(2)"),
});

const insert = `INSERT INTO task (input, "group", max, plan, active, state, timeout, count, live, remote, header)
  SELECT i, g, CASE m WHEN 'pausing' THEN -5 ELSE x END,
    CASE m WHEN 'later' THEN now() + '1 day' WHEN 'late' THEN now() - interval '1 h' ELSE now() END,
    CASE m WHEN 'late' THEN interval '1 s' ELSE '1 h' END,
    CASE m WHEN 'stopped' THEN 'STOP' ELSE 'PLAN' END::state,
    CASE m WHEN 'timeout' THEN interval '1 s' ELSE '0' END, CASE m WHEN 'count' THEN 2 ELSE 0 END,
    CASE m WHEN 'live' THEN interval '1 h' ELSE '0' END, CASE m WHEN 'remote' THEN 'host=elsewhere' END, place % 2 = 0
  FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]) WITH ORDINALITY AS r(i, g, x, m, place) ORDER BY place`;

test("for any table, it takes the tasks that the full claim would take first", async () => {
  const requested = fc.record({
    running: fc.nat({ max: 3 }),
    slots: fc.integer({ min: 1, max: 5 }),
  });
  const situation = fc.record({
    rows: fc.array(row, { maxLength: 25 }),
    of: fc.array(requested, { minLength: 1, maxLength: groups.length }),
    paused: fc.constantFrom(...Array<string>(12).fill("none"), "b", "all"),
  });
  await fc.assert(
    fc.asyncProperty(situation, async ({ rows, of, paused }) => {
      await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
      await user.query(insert, [
        rows.map(({ input }) => input),
        rows.map((each) => each.group),
        rows.map(({ max }) => max),
        rows.map(({ more }) => more),
      ]);
      if (paused !== "none")
        await user.query('INSERT INTO task_pause ("group") VALUES ($1)', [paused === "all" ? null : paused]);
      const request = requestOf(of);
      assert.ok(isQueuedClaim(request));
      const whole = await undone(async () => {
        const { claimed, heads } = await claimFull(manager, table, request);
        return { claimed, heads, table: await shown() };
      });
      const lean = await undone(async () => {
        const outcome = await claimQueued(manager, table, request);
        return { ...outcome, table: await shown() };
      });
      const expected = of.map((each, group) => expectedOf(rows, paused, groups[group] ?? "", each));
      assert.deepEqual(
        lean.claimed.map(({ id }) => Number(id)).toSorted((a, b) => a - b),
        expected.flatMap(({ taken }) => taken).toSorted((a, b) => a - b),
      );
      assert.equal(
        lean.needsFull,
        expected.some(({ odd }) => odd),
      );
      const ids = new Set(lean.claimed.map(({ id }) => id));
      assert.deepEqual(withoutTime(lean.claimed), withoutTime(whole.claimed.filter(({ id }) => ids.has(id))));
      if (lean.needsFull) return;
      assert.deepEqual(lean.table, whole.table);
      assert.deepEqual(
        new Map(lean.heads.map(({ hash, id, max }) => [hash, [id, max]])),
        new Map(whole.heads.map(({ hash, id, max }) => [hash, [id, max]])),
      );
    }),
    { numRuns: 300 },
  );
});

test("while one of the rows is locked, it claims none of them and fails", async () => {
  await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
  await user.query(`INSERT INTO task (input, "group", max) SELECT 'SELECT 1', 'a', 9 FROM generate_series(1, 3)`);
  await holder.query("BEGIN; SELECT FROM task WHERE id = 2 FOR UPDATE");
  try {
    const request = requestOf([{ running: 1, slots: 3 }]);
    await assert.rejects(claimQueued(manager, table, request), { code: "55P03" });
  } finally {
    await holder.query("ROLLBACK");
  }
  const { rows } = await user.query("SELECT FROM task WHERE state = 'PLAN' AND owner IS NULL AND ready");
  assert.equal(rows.length, 3);
});

test("the next claim is a full one, and begins at the task that was changed in the meantime", async () => {
  const fixed = { hash: 1, max: 5, input: "SELECT 1", group: "a", next_max: 5, next_odd: false };
  const answer = [
    { ...fixed, id: "11", nth: 1, next_id: "12" },
    { ...fixed, id: "13", nth: 3, next_id: "14" },
    { ...fixed, id: "21", hash: 2, nth: 1, next_id: null, next_max: null, next_odd: null },
    { ...fixed, id: "32", hash: 3, nth: 2, next_id: "33" },
  ];
  const client = stubClient(async () => ({ rows: answer, rowCount: answer.length }));
  const { heads, needsFull, claimed } = await claimQueued(client, table, {
    ...requestOf([]),
    groups: [1, 2, 3, 4].map((hash) => ({
      hash,
      running: 1,
      quietMs: Infinity,
      maxTasks: 9,
      ownSlots: [],
      max: 7,
      id: 10n,
    })),
  });
  assert.deepEqual(
    claimed.map(({ id }) => id),
    ["11", "13", "21", "32"],
  );
  assert.deepEqual(heads, [
    { hash: 1, max: 5, id: "12" },
    { hash: 3, max: 7, id: "10" },
    { hash: 4, max: 7, id: "10" },
  ]);
  assert.ok(needsFull);
});

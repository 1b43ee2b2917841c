import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import type { OwnedResult } from "../../../../src/manager/model/tasks.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { endUnrun, readLate } from "../../../../src/manager/groups/endUnrun.sql.js";
import { releaseTasks } from "../../../../src/manager/results/releaseTasks.sql.js";
import { nextPlan, markDue } from "../../../../src/manager/groups/plannedTasks.sql.js";
import { rescueTasks } from "../../../../src/manager/recovery/rescue.sql.js";
import { findDeadOwners } from "../../../../src/manager/sql/ownerBackends.sql.js";
import { recheckLocked } from "../../../../src/manager/claim/recheckLocked.sql.js";
import { test } from "../../../support/limitedTest.js";
import { openTable, ownerOf } from "../../../support/taskTables.js";
import { insertTask } from "../../../support/tasks.js";
import { retryPolicy } from "../../../support/retryPolicy.js";

const { database, user, manager, table } = await openTable();
const holder = await database.connect();
const shape = await readColumnSet(manager, table);

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

/** Inserts a task as a claim for the owner "me" leaves it, except for these columns. Ids start at 1. */
async function taken(more: Record<string, string | number> = {}): Promise<void> {
  const claimed = { state: "WORK", owner: "me", pid: 7, take: "now", start: "now" };
  await insertTask(user, "SELECT 1", { ...claimed, ...more });
}

const start = "2026-01-02T03:04:05.000001Z";
const stop = "2026-01-02T03:04:06.000002Z";

function result(id: number, more: Partial<OwnedResult> = {}): OwnedResult {
  const fixed = { outcome: "ended", session: 1, id: String(id), owner: "me", start, stop } as const;
  return { ...fixed, output: "out", error: null, sqlstate: null, committed: false, ...more };
}

const complete = (...results: readonly OwnedResult[]) =>
  completeFull(manager, table, shape, results, { retry: retryPolicy });

async function rows(columns: string): Promise<Record<string, unknown>[]> {
  return (await user.query(`SELECT ${columns} FROM task ORDER BY id`)).rows;
}

/** Keeps a row locked while `work` runs. */
async function holding<T>(id: number, work: () => Promise<T>): Promise<T> {
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
  try {
    return await work();
  } finally {
    await holder.query("ROLLBACK");
  }
}

test("a result without a stop time gets the current time", async () => {
  await taken();
  await complete(result(1, { stop: null }));
  assert.deepEqual(await rows("stop > now() - interval '1 hour' AS recent"), [{ recent: true }]);
});

test("a task that was stopped while it ran stays STOP when its run or its session ends, and its row is not deleted", async () => {
  await taken({ delete: "true" });
  await taken({ delete: "true" });
  await user.query("UPDATE task SET state = 'STOP'");
  await complete(result(1, { output: null }));
  assert.equal(await rescuedOf({ dead: ["me"], ids: ["2"], crashes: 1, blame: true }), 1);
  const stopped = { state: "STOP", owner: null, ready: null, output: null };
  assert.deepEqual(await rows("state::text, owner, ready, output"), [stopped, stopped]);
});

test("a task that was set to PLAN while it ran becomes ready at its planned time", async () => {
  await taken();
  await taken();
  await user.query("UPDATE task SET state = 'PLAN'");
  await user.query("UPDATE task SET plan = '2100-01-01' WHERE id = 2");
  assert.deepEqual(await rows("ready"), [{ ready: null }, { ready: null }]);
  await complete(result(1), result(2));
  assert.deepEqual(await rows("state::text, owner, ready"), [
    { state: "PLAN", owner: null, ready: true },
    { state: "PLAN", owner: null, ready: false },
  ]);
});

test("a result for a task that now belongs to another session changes nothing", async () => {
  await taken({ owner: "another" });
  const locked = await complete(result(1), result(99));
  assert.equal(locked.lockedIds.size, 0);
  assert.deepEqual(await rows("state::text, owner, output"), [{ state: "WORK", owner: "another", output: null }]);
});

test("a released task waits again, and its row shows nothing of its start", async () => {
  await taken();
  await taken({ plan: "2100-01-01" });
  await taken({ state: "STOP" });
  await taken({ owner: "another" });
  const all = [1, 2, 3, 4].map((id) => ({ id: String(id), owner: "me" }));
  assert.equal((await releaseTasks(manager, table, all)).size, 0);
  const back = { owner: null, pid: null, taken: false, started: false };
  assert.deepEqual(
    await rows("state::text, ready, owner, pid, take IS NOT NULL AS taken, start IS NOT NULL AS started"),
    [
      { state: "PLAN", ready: true, ...back },
      { state: "PLAN", ready: false, ...back },
      { state: "STOP", ready: null, ...back },
      { state: "WORK", ready: null, owner: "another", pid: 7, taken: true, started: true },
    ],
  );
});

test("a task to be released whose row is locked is reported", async () => {
  await taken();
  const owned = [{ id: "1", owner: "me" }];
  const locked = await holding(1, () => releaseTasks(manager, table, owned));
  assert.deepEqual([...locked], ["1"]);
  assert.deepEqual(await rows("state::text"), [{ state: "WORK" }]);
});

test("an owner is dead if its backend is gone, or if another backend has its pid", async () => {
  const owner = await ownerOf(user);
  const [pid = ""] = owner.split(" ");
  const successor = `${pid} 2001-01-01T00:00:00.000000`;
  assert.deepEqual(await findDeadOwners(manager, table, [owner, successor, "2147483647 x"]), [
    successor,
    "2147483647 x",
  ]);
});

/** Rescues tasks, and returns how many were rescued. */
async function rescuedOf(request: Parameters<typeof rescueTasks>[3]): Promise<number> {
  return (await rescueTasks(manager, table, shape, request)).rescued.length;
}

test("a rescued task waits again; only a death of its own run is counted", async () => {
  await taken();
  await taken({ crash: 1 });
  await taken({ owner: "alive" });
  await taken({ state: "TAKE" });
  const request = { dead: ["me"], ids: ["1", "2", "3", "4"], crashes: 3 };
  assert.equal(await rescuedOf({ ...request, blame: false }), 3);
  const rescued = { state: "PLAN", owner: null, pid: null, ready: true };
  const columns = "state::text, owner, pid, ready, crash";
  assert.deepEqual(await rows(columns), [
    { ...rescued, crash: 0 },
    { ...rescued, crash: 1 },
    { state: "WORK", owner: "alive", pid: 7, ready: null, crash: 0 },
    { ...rescued, crash: 0 },
  ]);
  await user.query("UPDATE task SET state = CASE id WHEN 4 THEN 'TAKE' ELSE 'WORK' END::state, owner = 'me'");
  assert.equal(await rescuedOf({ ...request, blame: true }), 4);
  assert.deepEqual(
    (await rows("crash")).map((row) => row["crash"]),
    [1, 2, 1, 0],
  );
});

/**
 * Inserts a task whose planned time has come without any write: its `ready` is still what the trigger computed before.
 */
async function planned(plan: string): Promise<void> {
  await manager.query(`INSERT INTO public.task (input, plan, active) VALUES ('SELECT 1', '2100-01-01', '1 day')`);
  await manager.query("UPDATE public.task SET plan = $1 WHERE id = (SELECT max(id) FROM public.task)", [plan]);
}

test("only tasks whose planned time has come become ready", async () => {
  await planned("now");
  await planned("2100-01-01");
  await planned("yesterday");
  assert.deepEqual(await rows("ready"), [{ ready: false }, { ready: false }, { ready: false }]);
  assert.deepEqual(
    (await holding(3, () => markDue(manager, table))).due.map(({ id }) => id),
    ["1"],
  );
  assert.deepEqual(await rows("ready"), [{ ready: true }, { ready: false }, { ready: false }]);
  await markDue(manager, table);
  assert.deepEqual(await rows("ready"), [{ ready: true }, { ready: false }, { ready: true }]);
});

test("if more than a thousand tasks have become due, marking them reports that there are more", async () => {
  await user.query("INSERT INTO task (input, plan) SELECT 'SELECT 1', '2100-01-01' FROM generate_series(1, 1500)");
  await manager.query("UPDATE public.task SET plan = 'yesterday'");
  assert.equal((await markDue(manager, table)).more, true);
  assert.equal((await markDue(manager, table)).more, false);
  assert.deepEqual((await user.query("SELECT count(*)::int FROM task WHERE ready")).rows, [{ count: 1500 }]);
});

test("the next planned time is that of the next task that is not ready, and never in the past", async () => {
  assert.equal((await nextPlan(manager, table)).ms, null);
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  assert.equal((await nextPlan(manager, table)).ms, null);
  // PostgreSQL before version 17 cannot subtract from infinity.
  await planned("infinity");
  assert.equal((await nextPlan(manager, table)).ms, null);
  await planned("2100-01-01");
  await user.query("INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 hour')");
  const ms = (await nextPlan(manager, table)).ms ?? Number.NaN;
  assert.ok(ms > 0 && ms <= 3_600_000, `${ms}`);
  await planned("yesterday");
  assert.equal((await nextPlan(manager, table)).ms, 0);
});

test("late tasks expire in batches", async () => {
  const old = { plan: "2001-01-01", active: "1 day" };
  for (let each = 0; each < 3; each += 1) {
    await user.query("INSERT INTO task (input, plan, active, max) VALUES ('SELECT 1', $1, $2, $3)", [
      old.plan,
      old.active,
      each,
    ]);
  }
  await user.query("INSERT INTO task (input, plan, active, max) VALUES ('SELECT 1', $1, $2, -1)", [
    old.plan,
    old.active,
  ]);
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  await user.query("INSERT INTO task (input, plan, active) VALUES ('SELECT 1', '-infinity', '178000000 years')");
  const { rows: groups } = await user.query<{ hash: number }>("SELECT DISTINCT hash FROM task");
  const hashes = groups.map(({ hash }) => hash);
  const expireFirst = async (limit: number): Promise<number> =>
    (await endUnrun(manager, table, shape, await readLate(manager, table, hashes, limit, []))).length;
  assert.equal(await expireFirst(2), 2);
  assert.deepEqual(await endUnrun(manager, table, shape, []), []);
  assert.equal(await expireFirst(2), 1);
  assert.equal(await expireFirst(2), 0);
  assert.deepEqual(
    (await rows("state::text")).map((row) => row["state"]),
    ["GONE", "GONE", "GONE", "PLAN", "PLAN", "PLAN"],
  );
});

test("of the tasks found locked, those that are still due are reported, whether locked or free, with their versions", async () => {
  await user.query(
    "INSERT INTO task (input, plan) SELECT 'SELECT 1', p::timestamptz FROM unnest('{now,now,2100-01-01}'::text[]) AS p",
  );
  const found = await holding(1, () => recheckLocked(manager, table, ["1", "2", "3", "99"]));
  const { rows: due } = await user.query(
    "SELECT id::text, hash, max, id = 1 AS locked, xmin::text AS version FROM task WHERE ready ORDER BY id",
  );
  assert.deepEqual(
    found.toSorted((a, b) => Number(a.id) - Number(b.id)),
    due,
  );
});

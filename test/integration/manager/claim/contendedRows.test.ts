import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { LockedTasks } from "../../../../src/manager/claim/lockedTasks.js";
import type { DueTask } from "../../../../src/manager/model/tasks.js";
import { lockNotAvailable } from "../../../../src/shared/postgres/sqlStates.js";
import { claimOf } from "../../../support/claims.js";
import { backendPid } from "../../../../src/shared/postgres/client.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";
import { eventually } from "../../../support/tasks.js";

const { database, user, manager, table } = await openTable();
const holder = await database.connect();
const pid = backendPid(manager);

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

/** Inserts a task into each of these groups. Ids start at 1. */
async function add(...groups: readonly string[]): Promise<readonly DueTask[]> {
  const { rows } = await user.query<DueTask>(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', g FROM unnest($1::text[]) AS g RETURNING id, hash, max`,
    [groups],
  );
  return rows;
}

const claim = (tasks: readonly DueTask[], contended: readonly string[]) =>
  claimFull(manager, table, {
    ...claimOf(new Map(tasks.map(({ hash }) => [hash, 0])), { sessions: tasks.length }),
    contended,
  });

const idsOf = (tasks: readonly { readonly id: string }[]): string[] => tasks.map(({ id }) => id).toSorted();

/** Resolves when the manager's connection waits for a lock. */
async function waiting(): Promise<void> {
  await eventually(user, `SELECT FROM pg_locks WHERE pid = ${pid} AND NOT granted`, (rows) => rows.length > 0);
}

test("a claim waits for the row of a contended task, and claims what the other session has written", async () => {
  const tasks = await add("a", "b");
  await holder.query("BEGIN");
  await holder.query("UPDATE task SET data = 'new', input = 'SELECT 2' WHERE id = 1");
  const pending = claim(tasks, ["1"]);
  await waiting();
  await holder.query("COMMIT");
  const { claimed, locked } = await pending;
  assert.deepEqual([idsOf(claimed), locked], [["1", "2"], []]);
  assert.equal(claimed.find(({ id }) => id === "1")?.input, "SELECT 2");
  assert.deepEqual((await user.query("SELECT DISTINCT state::text, data FROM task WHERE id = 1")).rows, [
    { state: "WORK", data: "new" },
  ]);
});

test("a contended task that is no longer due when its row is free is not claimed, but the others are", async () => {
  const tasks = await add("a", "b");
  await holder.query("BEGIN");
  await holder.query("UPDATE task SET plan = 'infinity' WHERE id = 1");
  const pending = claim(tasks, ["1"]);
  await waiting();
  await holder.query("COMMIT");
  const { claimed, locked } = await pending;
  assert.deepEqual([idsOf(claimed), idsOf(locked)], [["2"], ["1"]]);
});

test("a claim waits for one contended row at a time, and holds no other row meanwhile", async () => {
  const tasks = await add("a", "b", "c");
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id IN (1, 2) FOR UPDATE");
  const pending = claim(tasks, ["1", "2"]);
  await waiting();
  assert.equal((await user.query("SELECT FROM task WHERE id = 3 FOR UPDATE NOWAIT")).rowCount, 1);
  await holder.query("ROLLBACK");
  assert.deepEqual(idsOf((await pending).claimed), ["1", "2", "3"]);
});

test("a claim that waits too long takes nothing", async () => {
  const tasks = await add("a", "b");
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = 1 FOR UPDATE");
  await manager.query("SET lock_timeout = 20");
  await assert.rejects(claim(tasks, ["1"]), { code: lockNotAvailable });
  assert.deepEqual(idsOf((await claim(tasks, [])).claimed), ["2"]);
  await manager.query("RESET lock_timeout");
  await holder.query("ROLLBACK");
});

test("a row becomes contended if it is locked and was changed since the last recheck", async () => {
  const tasks = await add("a", "b");
  const locked = new LockedTasks(table);
  assert.deepEqual([locked.recheckMs, await locked.recheck(manager)], [Infinity, []]);
  assert.deepEqual(locked.addUnclaimed(tasks), []);
  assert.ok(locked.recheckMs < Infinity);
  await holder.query("BEGIN");
  await holder.query("UPDATE task SET data = 'x'");
  for (let round = 0; round < 3; round += 1) assert.deepEqual(await locked.recheck(manager), []);
  assert.deepEqual([locked.ids, locked.contendedIds], [["1", "2"], []]);
  await holder.query("COMMIT");
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = 1 FOR UPDATE");
  assert.deepEqual(idsOf(await locked.recheck(manager)), ["1", "2"]);
  assert.deepEqual([locked.ids, locked.contendedIds], [[], ["1"]]);
  await user.query("DELETE FROM task WHERE id = 2");
  await holder.query("UPDATE task SET plan = 'infinity' WHERE id = 1");
  await holder.query("COMMIT");
  await locked.recheck(manager);
  assert.deepEqual([locked.ids, locked.contendedIds, locked.recheckMs], [[], [], Infinity]);
});

test("a row becomes contended if it was found free and is locked again at the next claim", async () => {
  const tasks = await add("a");
  const locked = new LockedTasks(table);
  locked.addUnclaimed(tasks);
  assert.deepEqual(idsOf(await locked.recheck(manager)), ["1"]);
  assert.deepEqual([locked.ids, locked.contendedIds, locked.recheckMs], [[], [], Infinity]);
  assert.deepEqual(locked.addUnclaimed(tasks), tasks);
  assert.deepEqual([locked.ids, locked.contendedIds], [[], ["1"]]);
  // A task that expires is not waited for.
  locked.add(["1"]);
  assert.deepEqual([locked.ids, locked.contendedIds], [["1"], []]);
});

test("a notification leads to a recheck, however long the row has been locked", async () => {
  const tasks = await add("a");
  const locked = new LockedTasks(table);
  locked.addUnclaimed(tasks);
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task FOR UPDATE");
  for (let round = 0; round < 12; round += 1) assert.deepEqual(await locked.recheck(manager), []);
  const usual = locked.recheckMs;
  locked.notified();
  assert.ok(locked.recheckMs < usual / 2, `${locked.recheckMs} ms instead of ${usual} ms`);
  await holder.query("COMMIT");
  assert.deepEqual(idsOf(await locked.recheck(manager)), ["1"]);
  locked.notified();
  assert.equal(locked.recheckMs, Infinity);
});

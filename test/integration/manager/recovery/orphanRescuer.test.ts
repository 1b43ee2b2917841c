import assert from "node:assert/strict";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { OrphanRescuer } from "../../../../src/manager/recovery/orphanRescuer.js";
import { DeferredPauses } from "../../../../src/manager/groups/deferredPauses.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { ownerSql } from "../../../../src/shared/postgres/backendIdentity.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";
import { noRemoteRuns } from "../../../support/noRemoteRuns.js";
import { only } from "../../../support/tasks.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");
const log = createLog({ level: "silent", name: "test", write: () => {} });
/** The identity of a backend that never existed. */
const nobody = "2147483647 2001-01-01T00:00:00.000000";
const request = { crashes: 3, batch: 100, isKnown: () => true };

async function running(owner = nobody): Promise<{ id: string; hash: number; owner: string }> {
  const { rows } = await user.query<{ id: string; hash: number }>(
    "INSERT INTO task (input, state, owner) VALUES ('SELECT 1', 'WORK', $1) RETURNING id, hash",
    [owner],
  );
  return { ...only(rows), owner };
}

async function crashes(id: string): Promise<number> {
  const { rows } = await user.query<{ crash: number }>("SELECT crash FROM task WHERE id = $1", [id]);
  return only(rows).crash;
}

function some(): { orphans: OrphanRescuer; groups: ActiveGroups } {
  const groups = new ActiveGroups();
  return {
    orphans: new OrphanRescuer({
      table,
      groups,
      deferredPauses: new DeferredPauses(table, log),
      lostRemoteRuns: noRemoteRuns(),
      log,
    }),
    groups,
  };
}

test("a task whose session died alone is blamed for it", async () => {
  const { orphans, groups } = some();
  const task = await running();
  groups.addOrphan(task.hash);
  orphans.add(task);
  assert.equal(await orphans.check(manager, request), 1);
  assert.equal(await crashes(task.id), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning], [0, 0]);
});

test("the outcome of each rescue is reported once", async () => {
  const { orphans, groups } = some();
  for (const limit of [3, 1]) {
    const task = await running();
    groups.addOrphan(task.hash);
    orphans.add(task);
    await orphans.check(manager, { ...request, crashes: limit });
  }
  assert.deepEqual(orphans.takeOutcomes(), ["planned", "failed"]);
  assert.deepEqual(orphans.takeOutcomes(), []);
});

test("a task is not blamed when the manager's connection is lost too, in either order", async () => {
  const { orphans, groups } = some();
  const [before, behind] = [await running(), await running()];
  groups.addOrphan(before.hash);
  groups.addOrphan(behind.hash);
  orphans.add(before);
  orphans.clearBlame([]);
  orphans.add(behind);
  await orphans.scan(manager, () => false);
  assert.equal(await orphans.check(manager, request), 2);
  assert.deepEqual([await crashes(before.id), await crashes(behind.id)], [0, 0]);
  const alone = await running();
  groups.addOrphan(alone.hash);
  orphans.add(alone);
  await orphans.check(manager, request);
  assert.equal(await crashes(alone.id), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning], [0, 0]);
});

test("orphans that a scan finds count as running until they are rescued", async () => {
  const { orphans, groups } = some();
  const task = await running();
  const known = await running();
  await orphans.scan(manager, (row) => row.id === known.id);
  assert.equal(groups.get(task.hash)?.running, 1);
  await orphans.scan(manager, (row) => row.id === known.id);
  assert.equal(groups.totalRunning, 1);
  assert.equal(await orphans.check(manager, request), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning, await crashes(task.id)], [0, 0, 0]);
});

test("an orphan with a locked row does not count once its backend is gone", async () => {
  const { orphans, groups } = some();
  const task = await running();
  await orphans.scan(manager, ({ id }) => id !== task.id);
  await user.query("BEGIN");
  await user.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [task.id]);
  for (let times = 0; times < 2; times += 1) {
    assert.equal(await orphans.check(manager, request), 0);
    assert.deepEqual([orphans.size, groups.totalRunning], [1, 0]);
  }
  await user.query("COMMIT");
  assert.equal(await orphans.check(manager, request), 1);
  assert.deepEqual([orphans.size, groups.totalRunning], [0, 0]);
});

test("a task that is lost again before the next check counts once", async () => {
  const { orphans, groups } = some();
  const task = await running();
  groups.addOrphan(task.hash);
  orphans.add(task);
  assert.equal(await orphans.check(manager, request), 1);
  // The task is claimed and lost again before the next check.
  await user.query("UPDATE task SET state = 'WORK', owner = $1 WHERE id = $2", [nobody, task.id]);
  groups.addOrphan(task.hash);
  orphans.add(task);
  assert.equal(await orphans.check(manager, request), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning, await crashes(task.id)], [0, 0, 2]);
});

test("a lost session of this manager that is still alive is terminated, but not a session of another manager", async () => {
  const { orphans, groups } = some();
  const clients = [await database.connect(), await database.connect()];
  const runs = await Promise.all(
    clients.map(async (client) => {
      const { rows } = await client.query<{ owner: string }>(
        `SELECT ${ownerSql("a")} AS owner FROM pg_stat_activity AS a WHERE pid = pg_backend_pid()`,
      );
      return await running(only(rows).owner);
    }),
  );
  const [ours, strangers] = runs;
  assert.ok(ours !== undefined && strangers !== undefined);
  const ended = new Promise((resolve) => clients[0]?.once("end", resolve));
  groups.addOrphan(ours.hash);
  orphans.add(ours);
  await orphans.scan(manager, (row) => ![ours.id, strangers.id].includes(row.id));
  assert.equal(await orphans.check(manager, request), 0);
  await ended;
  while ((await orphans.check(manager, request)) === 0) continue;
  assert.equal(await crashes(ours.id), 1);
  await orphans.check(manager, request);
  assert.equal(orphans.size, 1);
  await clients[1]?.query("SELECT 1");
});

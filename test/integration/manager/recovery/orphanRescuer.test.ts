import assert from "node:assert/strict";
import type { OwnedRow } from "../../../../src/manager/recovery/rescue.sql.js";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager, ownerOf } from "../../../support/taskTables.js";
import { createComponents } from "../../../support/managerComponents.js";
import { only } from "../../../support/tasks.js";

const database = await createDatabase();
const otherDatabase = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);
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

function some() {
  const { groups, orphans } = createComponents(database.target);
  /** Adds a task that this manager has lost with a session. */
  const lose = (task: OwnedRow): void => {
    groups.addOrphan(task.hash);
    orphans.add(task);
  };
  return { orphans, groups, lose };
}

test("a task whose session died alone is blamed for it", async () => {
  const { orphans, groups, lose } = some();
  const task = await running();
  lose(task);
  assert.equal(await orphans.check(manager, request), 1);
  assert.equal(await crashes(task.id), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning], [0, 0]);
});

test("the outcome of each rescue is reported once", async () => {
  const { orphans, lose } = some();
  for (const limit of [3, 1]) {
    const task = await running();
    lose(task);
    await orphans.check(manager, { ...request, crashes: limit });
  }
  assert.deepEqual(orphans.takeOutcomes(), ["planned", "failed"]);
  assert.deepEqual(orphans.takeOutcomes(), []);
});

test("a task is not blamed when the manager's connection is lost too, in either order", async () => {
  const { orphans, groups, lose } = some();
  const [before, behind] = [await running(), await running()];
  lose(before);
  orphans.clearBlame([]);
  lose(behind);
  await orphans.scan(manager, () => false);
  assert.equal(await orphans.check(manager, request), 2);
  assert.deepEqual([await crashes(before.id), await crashes(behind.id)], [0, 0]);
  const alone = await running();
  lose(alone);
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
  const { orphans, groups, lose } = some();
  const task = await running();
  lose(task);
  assert.equal(await orphans.check(manager, request), 1);
  // The task is claimed and lost again before the next check.
  await user.query("UPDATE task SET state = 'WORK', owner = $1 WHERE id = $2", [nobody, task.id]);
  lose(task);
  assert.equal(await orphans.check(manager, request), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning, await crashes(task.id)], [0, 0, 2]);
});

test("a lost session of this manager that is still alive is terminated, but not a session of another manager", async () => {
  const { orphans, lose } = some();
  const clients = [await database.connect(), await database.connect()];
  const runs = await Promise.all(clients.map(async (client) => await running(await ownerOf(client))));
  const [ours, strangers] = runs;
  assert.ok(ours !== undefined && strangers !== undefined);
  const ended = new Promise((resolve) => clients[0]?.once("end", resolve));
  lose(ours);
  await orphans.scan(manager, (row) => ![ours.id, strangers.id].includes(row.id));
  assert.equal(await orphans.check(manager, request), 0);
  await ended;
  while ((await orphans.check(manager, request)) === 0) continue;
  assert.equal(await crashes(ours.id), 1);
  await orphans.check(manager, request);
  assert.equal(orphans.size, 1);
  await clients[1]?.query("SELECT 1");
});

test("the owner of a row that was copied from another database is dead here, and is not terminated", async () => {
  const { orphans, groups, lose } = some();
  const original = await otherDatabase.connect();
  const copy = await running(await ownerOf(original));
  await orphans.scan(manager, ({ id }) => id !== copy.id);
  await orphans.endForeignOwners(manager);
  assert.equal(await orphans.check(manager, request), 1);
  await orphans.check(manager, request);
  assert.deepEqual([orphans.size, groups.totalRunning, await crashes(copy.id)], [0, 0, 0]);
  // Neither is it terminated as one of the sessions that this manager has lost.
  const lost = await running(await ownerOf(original));
  lose(lost);
  await orphans.check(manager, request);
  await original.query("SELECT 1");
});

test("the owner of a row that was copied from another table is dead here if a manager serves that table", async () => {
  const { orphans } = some();
  await user.query("CREATE TABLE original (LIKE task)");
  const [original, otherManager] = [await database.connect(), await database.connect()];
  const copy = await running(await ownerOf(original));
  await orphans.scan(manager, ({ id }) => id !== copy.id);
  // The name alone proves nothing: the table may have been renamed.
  await original.query("SET application_name = 'pg_task public original group'");
  assert.equal(await orphans.check(manager, request), 0);
  await otherManager.query("SELECT pg_advisory_lock($1, 'original'::regclass::oid::integer)", [lockClasses.manager]);
  // A task can change the name of its session. Nobody knows then which table it serves.
  await original.query("SET application_name = 'own name'");
  assert.equal(await orphans.check(manager, request), 0);
  await orphans.endForeignOwners(manager);
  await original.query("SET application_name = 'pg_task public task'");
  assert.equal(await orphans.check(manager, request), 0);
  await original.query("SET application_name = 'pg_task public original'");
  await orphans.endForeignOwners(manager);
  assert.equal(await orphans.check(manager, request), 1);
  assert.equal(await crashes(copy.id), 0);
  await original.query("SELECT 1");
  // Another table whose name begins with the name of this one.
  await user.query("DROP TABLE original");
  await user.query("CREATE TABLE task_2 (LIKE task)");
  await otherManager.query("SELECT pg_advisory_lock($1, 'task_2'::regclass::oid::integer)", [lockClasses.manager]);
  await original.query("SET application_name = 'pg_task public task_2 group'");
  const second = await running(await ownerOf(original));
  await orphans.scan(manager, ({ id }) => id !== second.id);
  assert.equal(await orphans.check(manager, request), 1);
  await original.query("SELECT 1");
});

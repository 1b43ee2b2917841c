import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import type { OfferedSession } from "../../../../src/manager/model/tasks.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { createComponents } from "../../../support/managerComponents.js";
import { PgTask } from "../../../support/pgTask.js";
import { unreservedStarts } from "../../../support/claims.js";
import { openTable } from "../../../support/taskTables.js";

// The manager remembers each group's first due task (its head). Users stop and delete tasks without telling the
// manager.
const pgTask = new PgTask();
const served = await createDatabase("empty");
const { database, user, manager } = await openTable();
beforeEach(() => user.query("TRUNCATE task"));

/** Creates the components of a manager with four free sessions that accept any task. */
function makeParts() {
  const { groups, sessions, claimer: claiming, groupScanner } = createComponents(database.target);
  const given: string[] = [];
  Object.defineProperty(sessions, "size", { value: 4 });
  sessions.offer = (count): OfferedSession[] =>
    Array.from({ length: Math.min(count, 4) }, (_, number) => ({
      number,
      owner: `owner ${number}`,
      pid: number,
      dedication: null,
    }));
  sessions.assign = (tasks) => {
    given.push(...tasks.map(({ id }) => id));
    return [];
  };
  return { groups, given, claiming, groupScanner };
}

/** Inserts one task into each of this many groups. Returns the ids of the tasks. */
async function insert(groups: number): Promise<string[]> {
  const { rows } = await user.query<{ id: string }>(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'group ' || i FROM generate_series(1, $1) AS i RETURNING id`,
    [groups],
  );
  return rows.map(({ id }) => id);
}

const free = { isSaturated: false, watch: true, except: [] };
const saturated = { ...free, isSaturated: true };

test("if there are few groups, one scan drops the heads that are no longer due", async () => {
  const { groups, groupScanner } = makeParts();
  await insert(300);
  await groupScanner.scan(manager, free);
  assert.equal(groups.startable.size, 300);
  await user.query(`UPDATE task SET state = 'STOP' WHERE "group" <> 'group 7'`);
  await groupScanner.scan(manager, free);
  assert.equal(groups.startable.size, 1);
  await user.query("DELETE FROM task");
  await groupScanner.scan(manager, free);
  assert.equal(groups.startable.size, 0);
});

test("if there are many groups, outdated heads are dropped at the end of a round, and new ones are kept", async () => {
  const { groups, groupScanner } = makeParts();
  await insert(300);
  await groupScanner.scan(manager, free);
  await user.query(`UPDATE task SET state = 'STOP' WHERE "group" LIKE '%0'`);
  // Outdated heads stay until the end of a round of scans. This is the first scan of the round.
  await groupScanner.scan(manager, saturated);
  assert.equal(groups.startable.size, 300);
  const { rows } = await user.query<{ id: string; hash: number; max: number }>(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'new ' || i FROM generate_series(1, 20) AS i RETURNING id, hash, max`,
  );
  for (const task of rows) groupScanner.addDue(task);
  // When all sessions are busy, there must be some time between two scans.
  while (groups.startable.size > 270 + 20) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    await groupScanner.scan(manager, saturated);
  }
  assert.equal(groups.startable.size, 270 + 20);
});

test("claims get past groups with outdated heads in one cycle", async () => {
  const { given, groups, claiming, groupScanner } = makeParts();
  await insert(500);
  await groupScanner.scan(manager, free);
  await user.query("UPDATE task SET state = 'STOP'");
  const [id = ""] = await insert(1);
  await user.query(`UPDATE task SET "group" = 'another' WHERE id = $1`, [id]);
  const { rows } = await user.query<{ hash: number }>("SELECT hash FROM task WHERE id = $1", [id]);
  groupScanner.addDue({ id, hash: rows[0]?.hash ?? 0, max: 0 });
  assert.equal(groups.startable.size, 501);
  const room = { starts: unreservedStarts(4), lookAhead: 0, fetch: 100, limit: 1000 };
  const { claimed, again } = await claiming.claim(manager, room);
  assert.deepEqual({ claimed, given, again }, { claimed: 1, given: [id], again: false });
});

test("if there are more outdated heads than one cycle can read, the next cycle follows at once", async () => {
  const { given, claiming, groupScanner } = makeParts();
  for (let part = 0; part < 3; part += 1) {
    const groups = Array.from({ length: 1000 }, (_, nth) => part * 1000 + nth);
    for (const hash of groups) groupScanner.addDue({ id: "1", hash, max: 0 });
  }
  const room = { starts: unreservedStarts(4), lookAhead: 0, fetch: 100, limit: 1000 };
  let turns = 0;
  for (let again = true; again; turns += 1) ({ again } = await claiming.claim(manager, room));
  assert.deepEqual(given, []);
  assert.ok(turns > 1 && turns <= 4, String(turns));
});

test("a new task starts although four hundred tasks that waited for the same sessions were stopped", async () => {
  await pgTask.start({ url: served.url, "pg_conf.max": 4, "pg_task.sleep": 3_600_000 });
  const client = await served.connect();
  const states = async (state: string): Promise<number> => {
    const { rowCount } = await client.query("SELECT FROM task WHERE state = $1::text::state", [state]);
    return rowCount ?? 0;
  };
  await client.query(
    `INSERT INTO task (input, "group") SELECT 'SELECT pg_sleep(3600)', 'long ' || i FROM generate_series(1, 4) AS i`,
  );
  while ((await states("WORK")) < 4) await new Promise((resolve) => setTimeout(resolve, 20));
  await client.query(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'short ' || i FROM generate_series(1, 400) AS i`,
  );
  await pgTask.logged(({ msg }) => msg === "more sessions wanted than granted, tasks wait");
  await client.query(
    `WITH stopped AS (UPDATE task SET state = 'STOP')
     INSERT INTO task (input, "group") VALUES ('SELECT 1', 'new')`,
  );
  while ((await states("DONE")) < 1) await new Promise((resolve) => setTimeout(resolve, 20));
});

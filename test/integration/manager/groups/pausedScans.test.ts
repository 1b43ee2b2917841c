import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { GroupScanner } from "../../../../src/manager/groups/groupScanner.js";
import { PausedGroups } from "../../../../src/manager/groups/pausedGroups.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { stubClient } from "../../../support/stubClient.js";
import { only } from "../../../support/tasks.js";
import { openTable, silentLog } from "../../../support/taskTables.js";

/** Two groups with the same hash. */
const [paused, free] = ["n744", "n171856"];
const table = taskTable("public", "task");

const { user: client, manager } = await openTable();
const { rows } = await client.query<{ hash: number }>("SELECT hashtext($1) AS hash", [paused]);
const { hash } = only(rows);

let looks = 0;
/** The manager's connection. Counts in `looks` how often the manager searches behind paused heads. */
const counting: Client = stubClient(async (text, values) => {
  if (text.includes("nth")) looks += 1;
  const { rows: found, rowCount } = await manager.query(text, [...values]);
  return { rows: found, rowCount: rowCount ?? 0 };
});

/** The clock of the objects under test, in ms. */
let clock = 0;
const names = (): PausedGroups => new PausedGroups(table, () => clock);

/** Calls `work`, and returns how many searches were sent to the server in the meantime. */
async function asked(work: () => Promise<unknown>): Promise<number> {
  const before = looks;
  await work();
  return looks - before;
}

async function insert(group: string, count: number): Promise<string[]> {
  const { rows: inserted } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', $1 FROM generate_series(1, $2) RETURNING id`,
    [group, count],
  );
  return inserted.map(({ id }) => id);
}

async function firstLook(): Promise<void> {
  const scanner = new GroupScanner({ table, groups: new ActiveGroups(), log: silentLog });
  await scanner.scan(counting, { isSaturated: false, watch: true, except: [] });
}

beforeEach(async () => {
  clock = 0;
  await client.query(`TRUNCATE task, task_pause; INSERT INTO task_pause ("group") VALUES ('${paused}')`);
});

test("a paused group in which nothing is found is not searched for a second, however often the table changes", async () => {
  await insert(paused, 6_000);
  const looking = names();
  const look = async (): Promise<void> => {
    looking.markChanged();
    await looking.findUnpaused(counting, [hash], []);
  };
  // The first search reads 5,000 rows, the second one the other rows, and the third one finds the end.
  assert.deepEqual([await asked(look), await asked(look), await asked(look)], [1, 1, 1]);
  for (let each = 0; each < 20; each += 1) assert.equal(await asked(look), 0);
  clock = 999;
  assert.equal(await asked(look), 0);
  clock = 1_000;
  assert.equal(await asked(look), 1);
});

test("another search is due until everything has been read, and again after a change in the meantime", async () => {
  await insert(paused, 5);
  const looking = names();
  assert.equal(looking.nextLookMs, Infinity);
  const look = () => looking.findUnpaused(counting, [hash], []);
  await look();
  assert.equal(looking.nextLookMs, 1_000, "there may be more");
  await look();
  assert.equal(looking.nextLookMs, Infinity);

  const [id] = await insert(free, 1);
  looking.markChanged();
  assert.deepEqual(await look(), []);
  assert.equal(looking.nextLookMs, 1_000);
  clock = 1_000;
  assert.deepEqual(
    (await look()).map((row) => row.id),
    [id],
  );
});

test("a group in which something was found is searched each time", async () => {
  await insert(paused, 5);
  const [first, second] = await insert(free, 2);
  const looking = names();
  const found = async () => (await looking.findUnpaused(counting, [hash], [])).map(({ id }) => id);
  assert.deepEqual(await found(), [first]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [first]);
  assert.deepEqual(await found(), [second]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [second]);
  assert.deepEqual(await found(), []);
});

test("searches take at most a tenth of the time", async () => {
  await insert(paused, 6_000);
  const looking = names();
  const slow: Client = stubClient(async (text, values) => {
    clock += 7;
    const answer = await manager.query(text, [...values]);
    return { rows: answer.rows, rowCount: answer.rowCount ?? 0 };
  });
  await looking.findUnpaused(slow, [hash], []);
  clock = 76;
  assert.equal(await asked(() => looking.findUnpaused(counting, [hash], [])), 0);
  clock = 77;
  assert.equal(await asked(() => looking.findUnpaused(counting, [hash], [])), 1);
});

test("a group without tasks is forgotten after a round", async () => {
  await insert(paused, 5);
  const looking = names();
  await looking.findUnpaused(counting, [hash], []);
  looking.endRound();
  assert.equal(looking.nextLookMs, 1_000, "known");
  await looking.findUnpaused(counting, [], []);
  looking.endRound();
  looking.markChanged();
  assert.equal(looking.nextLookMs, Infinity, "not known any more");
});

test("while the whole table is paused, no paused group is searched", async () => {
  await insert(paused, 5);
  await insert(free, 5);
  assert.equal(await asked(firstLook), 1);
  await client.query("INSERT INTO task_pause DEFAULT VALUES");
  assert.equal(await asked(firstLook), 0);
});

import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { zoneCheckRows } from "../../../../src/manager/model/tuning.js";
import { ZoneChanges } from "../../../../src/manager/upkeep/zoneChanges.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("task");
const user = await database.connect();
const other = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

const rule = "0 4 * * *";

/** Inserts tasks with the rule, and moves their plans as new time zone data would: without noting a place in `due`. */
async function insertPlanned(count: number, by: string): Promise<void> {
  await user.query(
    `INSERT INTO task (input, plan, rule, zone) SELECT 'SELECT 1', '2100-01-01Z', $2, 'UTC' FROM generate_series(1, $1)`,
    [count, rule],
  );
  await manager.query("UPDATE public.task SET plan = plan + $1::interval", [by]);
}

/** Returns how many steps a round took. */
async function checkRound(): Promise<number> {
  const zoneChanges = new ZoneChanges({ table, log: silentLog });
  let steps = 1;
  while (await zoneChanges.step(manager)) steps += 1;
  return steps;
}

async function plans(): Promise<string[]> {
  const { rows } = await user.query<{ plan: string }>(
    "SELECT DISTINCT to_char(plan AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS plan FROM task ORDER BY 1",
  );
  return rows.map(({ plan }) => plan);
}

for (const by of ["-1 hour", "1 hour", "30 minutes"]) {
  test(`a plan that is ${by} from the time of its rule is moved to it`, async () => {
    await insertPlanned(1, by);
    await checkRound();
    assert.deepEqual(await plans(), ["2100-01-01 04:00"]);
  });
}

test("a round takes as many steps as the rows need", async () => {
  await insertPlanned(2 * zoneCheckRows + 1, "-1 hour");
  assert.equal(await checkRound(), 3);
  assert.deepEqual(await plans(), ["2100-01-01 04:00"]);
});

test("a plan that a user has moved stays", async () => {
  await insertPlanned(1, "0");
  await user.query("UPDATE task SET plan = '2100-01-01 05:00Z'");
  await checkRound();
  assert.deepEqual(await plans(), ["2100-01-01 05:00"]);
});

test("an invalid rule or zone is left alone", async () => {
  await insertPlanned(3, "-1 hour");
  await manager.query(
    "UPDATE public.task SET rule = 'nonsense' WHERE id = 1; UPDATE public.task SET zone = 'No/Where' WHERE id = 2",
  );
  await checkRound();
  assert.deepEqual(await plans(), ["2100-01-01 03:00", "2100-01-01 04:00"]);
});

test("a locked row is left for the next round", async () => {
  await insertPlanned(2, "-1 hour");
  await other.query("BEGIN; SELECT FROM task WHERE id = 1 FOR UPDATE");
  await checkRound();
  assert.deepEqual(await plans(), ["2100-01-01 03:00", "2100-01-01 04:00"]);
  await other.query("COMMIT");
  await checkRound();
  assert.deepEqual(await plans(), ["2100-01-01 04:00"]);
});

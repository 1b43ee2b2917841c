import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after } from "node:test";
import { SettingsReloader } from "../../../../src/manager/loop/settingsReloader.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { ensure, makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const told = new EventEmitter();
let tries = 0;
const ending = new AbortController();
after(() => ending.abort());

const renewal = new SettingsReloader({
  table: taskTable("public", "task"),
  entry: () => makeEntry(database.target, { create: false }),
  settled: () => {},
  placed: () => true,
  answered: () => {
    tries += 1;
    told.emit("tried");
  },
  signal: ending.signal,
  log: silentLog,
});

/** How often it has tried, after so many round trips to the server that another try would be over. */
async function triesSoon(): Promise<number> {
  for (let each = 0; each < 300; each += 1) await client.query("SELECT 1");
  return tries;
}

test("what is missing and cannot be made is tried with growing pauses, however many tasks miss it", async (context) => {
  // No pause is over before the test says so.
  context.mock.timers.enable({ apis: ["setTimeout"] });
  await client.query("DROP FUNCTION task_finish");
  renewal.mend();
  await once(told, "tried");
  for (let each = 0; each < 20; each += 1) {
    renewal.mend();
    await client.query("SELECT 1");
  }
  assert.equal(await triesSoon(), 1);

  // Parameters that have changed wait for no pause.
  renewal.start();
  await once(told, "tried");
  assert.equal(await triesSoon(), 2);

  await ensure(database.target);
  context.mock.timers.tick(2_000);
  await once(told, "tried");
  assert.equal(await triesSoon(), 3);
  renewal.mend();
  await once(told, "tried");
  assert.equal(await triesSoon(), 4);
});

test("what is missed while a try is under way is looked for once more", async () => {
  const before = tries;
  renewal.mend();
  for (let each = 0; each < 20; each += 1) renewal.mend();
  await once(told, "tried");
  await once(told, "tried");
  assert.equal(await triesSoon(), before + 2);
});

import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after } from "node:test";
import { SettingsReloader } from "../../../../src/manager/loop/settingsReloader.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { createComponents } from "../../../support/managerComponents.js";
import { ensureTaskTable, makeEntry } from "../../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const events = new EventEmitter();
let attempts = 0;
const components = Object.assign(createComponents(database.target), {
  entry: makeEntry(database.target, { create: false }),
  /** Receives the message that the parameters were tried to be applied. */
  send: () => {
    attempts += 1;
    events.emit("attempted");
  },
});
after(() => components.ending.abort());
const connection = {
  applySettings: () => {},
  doubtHome: () => {},
  leave: () => {},
  reloaded: () => events.emit("reloaded", renewal.isRunning),
};
const renewal = new SettingsReloader(components, connection);

/**
 * Returns the number of attempts. Makes so many round trips to the server before that any further attempt would have
 * ended.
 */
async function countAttempts(): Promise<number> {
  for (let each = 0; each < 300; each += 1) await client.query("SELECT 1");
  return attempts;
}

test("a missing object that cannot be created is retried with growing pauses, however many tasks need it", async (context) => {
  // The delays between attempts end only when the test lets the time pass.
  context.mock.timers.enable({ apis: ["setTimeout"] });
  await client.query("DROP FUNCTION task_finish");
  renewal.restore();
  await once(events, "attempted");
  for (let each = 0; each < 20; each += 1) {
    renewal.restore();
    await client.query("SELECT 1");
  }
  assert.equal(await countAttempts(), 1);

  // Changed parameters end the delay.
  renewal.restart();
  await once(events, "attempted");
  assert.equal(await countAttempts(), 2);

  await ensureTaskTable(database.target);
  context.mock.timers.tick(2_000);
  await once(events, "attempted");
  assert.equal(await countAttempts(), 3);
  renewal.restore();
  await once(events, "attempted");
  assert.equal(await countAttempts(), 4);
});

test("an object reported missing during an attempt causes another attempt", async () => {
  const before = attempts;
  renewal.restore();
  for (let each = 0; each < 20; each += 1) renewal.restore();
  await once(events, "attempted");
  await once(events, "attempted");
  assert.equal(await countAttempts(), before + 2);
});

test("the manager is told when nothing is to be applied any more, because it could not fall asleep meanwhile", async () => {
  renewal.restore();
  const [isRunning] = await once(events, "reloaded");
  assert.equal(isRunning, false);
});

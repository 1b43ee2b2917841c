import assert from "node:assert/strict";
import { test } from "node:test";
import type { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { SettingsAge } from "../../../../src/manager/sessions/settingsAge.js";
import { serverError, stubClient } from "../../../support/stubClient.js";
import { silentLog as log } from "../../../support/taskTables.js";

/**
 * Creates a settings age for a server that gives these answers in turn. Counts how often sessions are marked as stale.
 */
function looking(...answers: readonly (string | Error)[]) {
  const left = [...answers];
  const client = stubClient(async () => {
    const answer = left.shift() ?? assert.fail("one query too many");
    if (typeof answer !== "string") throw answer;
    return { rows: [{ version: answer }], rowCount: 1 };
  });
  const counted = { renewals: 0 };
  const renew = (): void => void (counted.renewals += 1);
  const sessions: SessionPool = Object.create(null, {
    size: { value: 1 },
    markStale: { value: renew },
  });
  const age = new SettingsAge({ sessions, table: taskTable("public", "task"), log });
  const look = async (always = true): Promise<void> => await age.tryCompare(client, always);
  return { age, client, counted, left, look };
}

test("sessions become stale when the first comparison finds another version", async () => {
  const { age, client, counted, look } = looking("1", "2", "2");
  await age.compare(client);
  assert.equal(counted.renewals, 0);
  await look();
  await look();
  assert.equal(counted.renewals, 1);
});

test("a cancelled comparison changes nothing, and the next one is not skipped", async () => {
  const { age, client, counted, left, look } = looking("1", serverError("57014"), "2");
  await age.compare(client);
  await look();
  age.throwFailure();
  assert.equal(counted.renewals, 0);
  await look(false);
  assert.deepEqual([counted.renewals, left], [1, []]);
});

test("any other error is thrown once, unless a new connection has compared since", async () => {
  const lost = new Error("Connection terminated");
  const { age, client, look } = looking("1", serverError("42501"), lost, "1");
  await age.compare(client);
  await look();
  assert.throws(() => age.throwFailure(), /said the server/);
  age.throwFailure();
  await look();
  await age.compare(client);
  age.throwFailure();
});

test("the first comparison throws its error at once", async () => {
  const { age, client } = looking(serverError("57014"));
  await assert.rejects(age.compare(client), /said the server/);
});

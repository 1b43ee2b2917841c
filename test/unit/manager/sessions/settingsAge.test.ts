import assert from "node:assert/strict";
import { test } from "node:test";
import { DatabaseError } from "pg";
import type { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import { SettingsAge } from "../../../../src/manager/sessions/settingsAge.js";
import { stubClient } from "../../../support/stubClient.js";
import { silentLog as log } from "../../../support/taskTables.js";

/** Looks at a server that answers these one after another; how often sessions were renewed is counted. */
function looking(...answers: readonly (string | Error)[]) {
  const left = [...answers];
  const client = stubClient(async () => {
    const answer = left.shift() ?? assert.fail("one look too many");
    if (typeof answer !== "string") throw answer;
    return { rows: [{ version: answer }], rowCount: 1 };
  });
  const counted = { renewals: 0 };
  const renew = (): void => void (counted.renewals += 1);
  const sessions: SessionPool = Object.create(null, {
    size: { value: 1 },
    renew: { value: renew },
  });
  const age = new SettingsAge({ sessions, log });
  const look = async (always = true): Promise<void> => await age.look(client, always);
  return { age, client, counted, left, look };
}

function said(code: string): DatabaseError {
  const error = new DatabaseError("said the server", 0, "error");
  error.code = code;
  return error;
}

test("sessions are renewed when the first look finds something else than what they began with", async () => {
  const { age, client, counted, look } = looking("1", "2", "2");
  await age.compare(client);
  assert.equal(counted.renewals, 0);
  await look();
  await look();
  assert.equal(counted.renewals, 1);
});

test("a look that was cancelled renews nothing, and the next one is not left out", async () => {
  const { age, client, counted, left, look } = looking("1", said("57014"), "2");
  await age.compare(client);
  await look();
  age.check();
  assert.equal(counted.renewals, 0);
  await look(false);
  assert.deepEqual([counted.renewals, left], [1, []]);
});

test("what else a look fails with is thrown once, and not when it was of another connection", async () => {
  const lost = new Error("Connection terminated");
  const { age, client, look } = looking("1", said("42501"), lost, "1");
  await age.compare(client);
  await look();
  assert.throws(() => age.check(), /said the server/);
  age.check();
  await look();
  await age.compare(client);
  age.check();
});

test("when a service begins, a failure is its own", async () => {
  const { age, client } = looking(said("57014"));
  await assert.rejects(age.compare(client), /said the server/);
});

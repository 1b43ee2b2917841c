import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { ProtocolConnection } from "../../../../src/shared/postgres/protocol/connection.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";

const database = await createDatabase("empty");
const user = await database.connect();

async function openWire(): Promise<ProtocolConnection> {
  const { stream } = (await connectClient(database.target, { applicationName: "wire" })).connection;
  stream.removeAllListeners("data");
  return new ProtocolConnection({ pid: 0, stream }, () => 1 << 20);
}

/** Blocks this thread's event loop, as may happen on a busy machine. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a connection counts as silent while an answer is awaited and nothing arrives", async () => {
  const wire = await openWire();
  await user.query("SELECT pg_advisory_lock(1)");
  const answer = wire.query("SELECT pg_advisory_xact_lock_shared(1)");
  await sleep(50);
  const ms = await wire.silentMs();
  // Timers may fire slightly early.
  assert.ok(ms >= 45, `${ms} ms`);
  await user.query("SELECT pg_advisory_unlock(1)");
  await answer;
  assert.equal(await wire.silentMs(), 0, "no answer is awaited");
  await wire.close();
});

test("a connection is not silent when its own thread has not read what arrived", async () => {
  const wire = await openWire();
  await wire.query("SELECT 1");
  const answer = wire.query("SELECT 1");
  // The query is sent at the end of this tick. After that, nothing is read while the event loop is blocked.
  await new Promise((resolve) => process.nextTick(resolve));
  stall(500);
  assert.equal(await wire.silentMs(), 0);
  await answer;
  await wire.close();
});

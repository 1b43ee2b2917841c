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

/** Stops this thread's event loop, as a busy machine does. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a wire is silent for as long as an answer is awaited and nothing comes", async () => {
  const wire = await openWire();
  await user.query("SELECT pg_advisory_lock(1)");
  const answer = wire.ask("SELECT pg_advisory_xact_lock_shared(1)");
  await sleep(50);
  const ms = await wire.silentMs();
  // A timer may come a little early.
  assert.ok(ms >= 45, `${ms} ms`);
  await user.query("SELECT pg_advisory_unlock(1)");
  await answer;
  assert.equal(await wire.silentMs(), 0, "nothing is awaited any more");
  await wire.close();
});

test("a wire is not silent when its own thread did not read what came", async () => {
  const wire = await openWire();
  await wire.ask("SELECT 1");
  const answer = wire.ask("SELECT 1");
  // The question leaves at the end of this turn; then nothing is read until it was asked.
  await new Promise((resolve) => process.nextTick(resolve));
  stall(500);
  assert.equal(await wire.silentMs(), 0);
  await answer;
  await wire.close();
});

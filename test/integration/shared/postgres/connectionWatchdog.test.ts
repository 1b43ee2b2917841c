import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { backendPid, connectClient } from "../../../../src/shared/postgres/client.js";
import { ConnectionWatchdog } from "../../../../src/shared/postgres/connectionWatchdog.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { TcpProxy } from "../../../support/tcpProxy.js";
import { waitForRow } from "../../../support/tasks.js";

const database = await createDatabase();
const user = await database.connect();
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const target = { ...database.target, host: "127.0.0.1", port: proxy.port };

/** Blocks this thread's event loop, as may happen on a busy machine. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a half-open connection and its backend are ended", async () => {
  const client = await connectClient(target, { applicationName: "cut" });
  const watchdog = new ConnectionWatchdog(client, { name: "watchdog", quietMs: 100 });
  const ended = new Promise((resolve) => client.once("end", resolve));
  assert.equal(proxy.freeze("cut"), 1);
  await ended;
  watchdog.stop();
  await waitForRow(user, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [backendPid(client)]);
});

test("a half-open connection is ended also if the connection of the inquiry goes silent", async () => {
  const client = await connectClient(target, { applicationName: "both" });
  const watchdog = new ConnectionWatchdog(client, { name: "silent watchdog", quietMs: 100 });
  const ended = new Promise((resolve) => client.once("end", resolve));
  assert.equal(proxy.freeze("both"), 1);
  await waitForRow(
    user,
    "SELECT FROM pg_stat_activity WHERE application_name = 'silent watchdog' AND query LIKE '%state_change%'",
  );
  assert.equal(proxy.freeze("silent watchdog"), 1);
  await ended;
  watchdog.stop();
});

for (const how of ["probeNow", "expectAnswer"] as const) {
  test(`a half-open connection that may be silent for long is found by ${how}`, async () => {
    const client = await connectClient(target, { applicationName: how });
    const watchdog = new ConnectionWatchdog(client, { name: "watchdog", quietMs: 100, restMs: () => 3_600_000 });
    for (let time = 0; time < 2; time += 1) {
      // The answer arrives, and a long silence begins.
      const answered = once(client.connection, "readyForQuery");
      watchdog.probeNow();
      await answered;
    }
    watchdog.expectAnswer();
    assert.deepEqual((await client.query("SELECT 1 AS one")).rows, [{ one: 1 }]);
    const ended = new Promise((resolve) => client.once("end", resolve));
    assert.equal(proxy.freeze(how), 1);
    watchdog[how]();
    await ended;
    watchdog.stop();
  });
}

test("a connection whose backend works on a long statement is left alone", async () => {
  const client = await connectClient(target, { applicationName: "long" });
  const watchdog = new ConnectionWatchdog(client, { name: "watchdog", quietMs: 100 });
  const { rows } = await client.query("SELECT 1 AS one FROM pg_sleep(8)");
  assert.deepEqual(rows, [{ one: 1 }]);
  watchdog.stop();
  await client.end();
});

test("a connection is left alone when this event loop was blocked", async () => {
  const client = await connectClient(target, { applicationName: "stalled" });
  const watchdog = new ConnectionWatchdog(client, { name: "watchdog", quietMs: 100 });
  for (let time = 0; time < 4; time += 1) {
    // This leaves just enough time for probes between two stalls.
    await sleep(1200);
    stall(2500);
  }
  const { rows } = await client.query("SELECT 1 AS one");
  assert.deepEqual(rows, [{ one: 1 }]);
  watchdog.stop();
  await client.end();
});

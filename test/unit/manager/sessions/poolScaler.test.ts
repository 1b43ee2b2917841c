import assert from "node:assert/strict";
import { it } from "node:test";
import { ExecutorThreads } from "../../../../src/manager/sessions/executorThreads.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import { availableConnections } from "../../../../src/manager/sessions/availableConnections.sql.js";
import { PoolScaler } from "../../../../src/manager/sessions/poolScaler.js";
import type { FromManager } from "../../../../src/shared/ipc/managerMessages.js";
import { computeSessions, exclusiveSessions } from "../../../../src/manager/model/tuning.js";
import { openSession } from "../../../support/openSession.js";
import { stubClient } from "../../../support/stubClient.js";
import { silentLog } from "../../../support/taskTables.js";

/** Creates a scaler. What is not given is never used. */
const createScaler = (options: Partial<ConstructorParameters<typeof PoolScaler>[0]>): PoolScaler =>
  new PoolScaler({
    sessions: Object.create(SessionPool.prototype),
    executors: Object.create(ExecutorThreads.prototype),
    runTimes: new RunTimes(),
    send: () => {},
    restartMs: 60_000,
    remoteCapacity: { sessionShare: availableConnections },
    claimer: { exclusiveShare: 0 },
    reserve: { kept: 0 },
    log: silentLog,
    ...options,
  });

/** Returns the delay after this many sessions have failed to open, in ms. */
function refused(times: number, longestPauseMs: number): number {
  const scaler = createScaler({ restartMs: longestPauseMs });
  for (let count = 0; count < times; count += 1) {
    const until = performance.now() + (scaler.pauseMs ?? 0);
    while (performance.now() < until) continue;
    scaler.sessionFailed({ message: "no" });
  }
  return scaler.pauseMs ?? 0;
}

it("pauses longer after each failure to open a session, up to the maximum", () => {
  const pauses = [refused(1, 60_000), refused(4, 60_000), refused(6, 40)];
  const [first = 0, fourth = 0, limited = 0] = pauses;
  assert.ok(first <= 100, String(pauses));
  assert.ok(fourth > 400, String(pauses));
  assert.ok(limited <= 40, String(pauses));
});

/** Returns the look-ahead if all of `size` sessions are slow. */
function lookAhead(size: number, runTimes: RunTimes): number {
  const sessions = Object.create(SessionPool.prototype, {
    size: { value: size },
    laneSize: { value: size },
    slow: { value: size },
  });
  const scaler = createScaler({ sessions, runTimes });
  scaler.grant(1_000, 1);
  return scaler.lookAhead;
}

it("looks ahead for as many sessions as are slow, however short runs have been", () => {
  const short = new RunTimes();
  for (let run = 0; run < 200; run += 1) short.add(1, 1);
  for (const known of [new RunTimes(), short]) {
    assert.ok(lookAhead(30, known) >= 30);
    assert.equal(lookAhead(500, known), lookAhead(100, known));
  }
});

/** Returns how many sessions may get tasks if this share of the tasks is exclusive and runs are short. */
function usable(exclusiveShare: number): number {
  const none = { value: 0 };
  const sessions = Object.create(SessionPool.prototype, { size: none, slow: none, laneBusy: none });
  const scaler = createScaler({ sessions, claimer: { exclusiveShare } });
  return scaler.usableSessions;
}

it("uses more sessions for short tasks if these cannot queue in a session", () => {
  assert.equal(usable(0), computeSessions);
  assert.equal(usable(1), exclusiveSessions);
  assert.equal(usable(0.01), computeSessions);
});

/** Creates a scaler with `count` open sessions, and records what it sends to their thread and to the supervisor. */
function openPool(count: number) {
  const sent: FromManager[] = [];
  const opened = openSession(count);
  return { ...opened, sent, scaler: createScaler({ ...opened, send: (message) => sent.push(message) }) };
}

it("closes sessions that have long been idle, and lowers its demand", () => {
  const { sessions, scaler, closed, sent } = openPool(4);
  // No session has been idle for a minute yet.
  scaler.shrink();
  assert.deepEqual([closed(), sent], [[], []]);
  const used = sessions.offer(2);
  scaler.shrink(0);
  assert.deepEqual(closed(), [3, 4]);
  assert.deepEqual(sent, [{ type: "demand", sessions: 2 }]);
  sessions.withdrawOffers(used);
  scaler.shrink(0);
  // One session stays open for the next task.
  assert.deepEqual(closed(), [3, 4, 1]);
  scaler.shrink(0);
  assert.deepEqual(sent.length, 2);
});

/** Creates a connection to a server with this many available connections. */
const serverWithAvailable = (room: number) =>
  stubClient(async () => await Promise.resolve({ rows: [{ room }], rowCount: 1 }));

it("lowers its demand once no task waits and a session is free", async () => {
  const { sessions, scaler, sent } = openPool(2);
  await scaler.grow(serverWithAvailable(10), 3);
  const used = sessions.offer(2);
  await scaler.grow(serverWithAvailable(10), 0);
  assert.deepEqual(sent, [{ type: "demand", sessions: 5 }]);
  sessions.withdrawOffers(used);
  await scaler.grow(serverWithAvailable(10), 0);
  assert.deepEqual(sent.at(-1), { type: "demand", sessions: 2 });
});

it("demands nothing more when a smaller grant has closed all of its idle sessions", async () => {
  const { receive, scaler, sent } = openPool(2);
  await scaler.grow(serverWithAvailable(10), 0);
  scaler.grant(0, 1);
  scaler.applyGrant();
  for (const session of [1, 2]) receive({ type: "closed", session });
  await scaler.grow(serverWithAvailable(10), 0);
  assert.deepEqual(sent, [
    { type: "demand", sessions: 2 },
    { type: "demand", sessions: 0 },
  ]);
});

it("reports to the supervisor, at intervals, that the server has too few connections available", async () => {
  const { scaler, sent } = openPool(1);
  scaler.grant(4, 1);
  const fullServer = serverWithAvailable(0);
  await scaler.grow(fullServer, 2);
  await scaler.grow(fullServer, 2);
  assert.deepEqual(sent, [
    { type: "demand", sessions: 3 },
    { type: "serverFull", capacity: 0 },
  ]);
});

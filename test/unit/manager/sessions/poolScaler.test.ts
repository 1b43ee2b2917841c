import assert from "node:assert/strict";
import { it } from "node:test";
import {
  ExecutorThreads,
  type ExecutorThread,
} from "../../../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import { PoolScaler } from "../../../../src/manager/sessions/poolScaler.js";
import type { FromManager, ToExecutor } from "../../../../src/shared/ipc/messages.js";
import { stubClient } from "../../../support/stubClient.js";
import { silentLog } from "../../../support/taskTables.js";

/** The pause of one whose sessions are never opened, right after so many refusals, in ms. */
function refused(times: number, longestPauseMs: number): number {
  const executors = Object.create(ExecutorThreads.prototype);
  const sessions = Object.create(SessionPool.prototype);
  const workforce = new PoolScaler({
    sessions,
    executors,
    runTimes: new RunTimes(),
    send: () => {},
    longestPauseMs: () => longestPauseMs,
    share: (room) => room,
    log: silentLog,
  });
  for (let count = 0; count < times; count += 1) {
    const until = performance.now() + (workforce.pauseMs ?? 0);
    while (performance.now() < until) continue;
    workforce.refused("no");
  }
  return workforce.pauseMs ?? 0;
}

it("waits longer and longer before sessions are opened again, but no longer than it may", () => {
  const pauses = [refused(1, 60_000), refused(4, 60_000), refused(6, 40)];
  const [first = 0, fourth = 0, limited = 0] = pauses;
  assert.ok(first <= 100, String(pauses));
  assert.ok(fourth > 400, String(pauses));
  assert.ok(limited <= 40, String(pauses));
});

/** How many more sessions are looked ahead for when all of so many are held up. */
function lookAhead(size: number, runTimes: RunTimes): number {
  const workforce = new PoolScaler({
    sessions: Object.create(SessionPool.prototype, {
      size: { value: size },
      slow: { value: size },
    }),
    executors: Object.create(ExecutorThreads.prototype),
    runTimes,
    send: () => {},
    longestPauseMs: () => 60_000,
    share: (room) => room,
    log: silentLog,
  });
  workforce.grant(1_000, 1);
  return workforce.lookAhead;
}

it("tries as many more sessions as long runs hold up, however short runs have been", () => {
  const short = new RunTimes();
  for (let run = 0; run < 200; run += 1) short.add(1, 1);
  for (const known of [new RunTimes(), short]) {
    assert.ok(lookAhead(30, known) >= 30);
    assert.equal(lookAhead(500, known), lookAhead(100, known));
  }
});

const nothing = (): void => {};

/** A workforce with so many open sessions, and what it tells their thread and the supervisor. */
function staffed(count: number) {
  const thread: ExecutorThread = Object.create(null);
  const told: ToExecutor[] = [];
  const sent: FromManager[] = [];
  const executors: ExecutorThreads = Object.create(ExecutorThreads.prototype, {
    threads: { value: new Set([thread]) },
    tell: { value: (_: ExecutorThread, message: ToExecutor) => told.push(message) },
  });
  const runTimes = new RunTimes();
  const sessions = new SessionPool({
    executors,
    groups: new ActiveGroups(),
    runTimes,
    maxThreads: () => 1,
    mayUseMore: () => false,
    events: {
      changed: nothing,
      result: nothing,
      started: nothing,
      remote: nothing,
      lost: nothing,
      silent: nothing,
      recall: nothing,
      permit: nothing,
      revoke: nothing,
      lacking: nothing,
      opened: nothing,
      unopened: nothing,
      cancel: nothing,
    },
    log: silentLog,
  });
  const workforce = new PoolScaler({
    sessions,
    executors,
    runTimes,
    send: (message) => sent.push(message),
    longestPauseMs: () => 60_000,
    share: (room) => room,
    log: silentLog,
  });
  sessions.open(count);
  for (let session = 1; session <= count; session += 1) {
    const backend = { pid: session, owner: String(session) };
    sessions.receive(thread, { type: "opened", session, backend });
  }
  const closed = () =>
    told.flatMap((message) => (message.type === "close" ? message.sessions : []));
  return { sessions, workforce, closed, sent };
}

it("ends sessions that no task has needed for long, and gives back what it asked for", () => {
  const { sessions, workforce, closed, sent } = staffed(4);
  // A minute has not passed.
  workforce.shrink();
  assert.deepEqual([closed(), sent], [[], []]);
  const used = sessions.offer(2);
  workforce.shrink(0);
  assert.deepEqual(closed(), [3, 4]);
  assert.deepEqual(sent, [{ type: "demand", sessions: 2 }]);
  sessions.withdraw(used);
  workforce.shrink(0);
  // The next task finds one that is open.
  assert.deepEqual(closed(), [3, 4, 1]);
  workforce.shrink(0);
  assert.deepEqual(sent.length, 2);
});

/** A server with room for so many more connections. */
const serverWith = (room: number) =>
  stubClient(async () => await Promise.resolve({ rows: [{ room }], rowCount: 1 }));

it("asks for no more than it has once nothing waits and a session is free", async () => {
  const { sessions, workforce, sent } = staffed(2);
  await workforce.grow(serverWith(10), 3);
  const used = sessions.offer(2);
  await workforce.grow(serverWith(10), 0);
  assert.deepEqual(sent, [{ type: "demand", sessions: 5 }]);
  sessions.withdraw(used);
  await workforce.grow(serverWith(10), 0);
  assert.deepEqual(sent.at(-1), { type: "demand", sessions: 2 });
});

it("tells the supervisor, now and then, that the server has room for less than it may open", async () => {
  const { workforce, sent } = staffed(1);
  workforce.grant(4, 1);
  const full = serverWith(0);
  await workforce.grow(full, 2);
  await workforce.grow(full, 2);
  assert.deepEqual(sent, [
    { type: "demand", sessions: 3 },
    { type: "full", room: 0 },
  ]);
});

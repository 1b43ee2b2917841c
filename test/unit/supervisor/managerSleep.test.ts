import assert from "node:assert/strict";
import { test } from "node:test";
import type { SleepingTable } from "../../../src/shared/ipc/sleepingTable.js";
import { ManagerSleep } from "../../../src/supervisor/managerSleep.js";
import type { WatchedTable } from "../../../src/supervisor/watchConnection.js";

const table: SleepingTable = { oid: 1, channels: ["c"], rollCall: "r", checkSql: "", wakeMs: Infinity };
const known = {
  quietMs: 50,
  zoneCheckMs: 1e9,
  settled: { oid: 1, stateType: null, serverStart: null, wasServed: true },
};
const target = { host: "h", port: 1, database: "d", user: "u", sslmode: "disable", connectTimeoutMs: 1 } as const;

const settle = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));

const never = new AbortController().signal;

/** @param answers what the watch answers when a table is added and when its lock is taken */
function createSleep({ adds = true, locks = true }: { adds?: boolean | boolean[]; locks?: boolean | null } = {}) {
  const calls: string[] = [];
  const watched: WatchedTable[] = [];
  const connection = {
    add: async (by: WatchedTable) => {
      watched.push(by);
      return Array.isArray(adds) ? (adds.shift() ?? true) : adds;
    },
    lock: async () => locks,
    remove: () => void calls.push("removed"),
  };
  const sleep = new ManagerSleep({
    watches: { of: () => connection },
    target: () => target,
    accept: () => void calls.push("accepted"),
    asleep: () => void calls.push("asleep"),
    unwatched: ({ code }) => void calls.push(code),
    refused: (reason) => void calls.push(reason?.code ?? "login accepted"),
  });
  /** Lets the table of a manager that ends fall asleep, and returns its sleep. */
  const fallAsleep = async (stop = never): Promise<{ readonly slept: Promise<void> }> => {
    sleep.offer(table);
    await settle();
    const slept = sleep.sleep(known, stop);
    await settle();
    return { slept };
  };
  return { sleep, calls, watched, fallAsleep };
}

test("a table that is watched and locked sleeps until it is woken, and its next manager knows what the last one knew", async () => {
  const { sleep, calls, watched, fallAsleep } = createSleep();
  const { slept } = await fallAsleep();
  assert.deepEqual(calls, ["accepted", "asleep"]);
  watched[0]?.wake("task");
  await slept;
  assert.deepEqual(calls, ["accepted", "asleep", "removed"]);
  assert.equal(sleep.hasTask, true);
  const { memory, sleepsAtOnce } = sleep.takeParameters(1000);
  assert.ok(memory !== undefined && memory !== null && memory.quietMs >= 50 && memory.zoneCheckMs <= 1e9);
  assert.equal(sleepsAtOnce, false, "its task may not be the only one");
  assert.equal(sleep.takeParameters(1000).memory, null);
});

test("a table whose watch has just been lost is watched a second later, unless its manager has withdrawn the offer", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { sleep, calls, watched } = createSleep({ adds: [false, false, true] });
  sleep.offer(table);
  await settle();
  context.mock.timers.tick(1_000);
  await settle();
  assert.deepEqual([watched.length, calls], [2, []]);
  context.mock.timers.tick(1_000);
  await settle();
  assert.deepEqual([watched.length, calls], [3, ["accepted"]]);

  const other = createSleep({ adds: false });
  other.sleep.offer(table);
  await settle();
  other.sleep.withdraw();
  context.mock.timers.tick(1_000);
  await settle();
  assert.equal(other.watched.length, 1);
});

test("a refused login counts only while the table sleeps: otherwise, its manager finds it out", async () => {
  const { sleep, calls, watched } = createSleep();
  sleep.offer(table);
  await settle();
  watched[0]?.refused({ code: "CONNECTION_REJECTED", message: "" });
  const slept = sleep.sleep(known, never);
  await settle();
  watched[0]?.refused({ code: "CONNECTION_REJECTED", message: "" });
  watched[0]?.refused(null);
  watched[0]?.refused({ code: "CONNECTION_REJECTED", message: "" });
  sleep.wake("task");
  await slept;
  const told = ["CONNECTION_REJECTED", "login accepted", "CONNECTION_REJECTED", "login accepted"];
  assert.deepEqual(calls, ["accepted", "asleep", ...told, "removed"]);
});

for (const reason of ["task", "configured"] as const) {
  test(`a table that is woken (${reason}) before its manager has ended does not fall asleep`, async () => {
    const { sleep, calls } = createSleep();
    sleep.offer(table);
    await settle();
    sleep.wake(reason);
    await sleep.sleep(known, never);
    assert.deepEqual(calls, ["accepted", "removed"]);
    assert.equal(sleep.takeParameters(1000).memory, null);
  });
}

for (const [reason, isSettled] of [
  ["task", true],
  ["clock", false],
  ["configured", false],
] as const) {
  test(`the manager of a table that was woken (${reason}) looks at ${isSettled ? "what has changed only" : "everything"}`, async () => {
    const { sleep, watched, fallAsleep } = createSleep();
    const { slept } = await fallAsleep();
    watched[0]?.wake(reason === "clock" ? reason : "task");
    if (reason === "configured") sleep.wake(reason);
    await slept;
    const { memory } = sleep.takeParameters(1000);
    assert.deepEqual(memory?.settled, isSettled ? known.settled : null);
  });
}

test("a lock that another manager has keeps the table awake for a while, one that was lost with the connection does not", async () => {
  for (const locks of [false, null]) {
    const { sleep, calls } = createSleep({ locks });
    sleep.offer(table);
    await settle();
    await sleep.sleep(known, never);
    sleep.offer(table);
    await settle();
    assert.deepEqual(calls, locks === null ? ["accepted", "removed", "accepted"] : ["accepted", "removed"]);
    assert.equal(sleep.takeParameters(1000).memory, null);
  }
});

test("after the watch was lost, nothing that the last manager knew counts", async () => {
  const { sleep, calls, watched, fallAsleep } = createSleep();
  const { slept } = await fallAsleep();
  watched[0]?.lost({ code: "CONNECTION_LOST", message: "lost" });
  watched[0]?.regained();
  watched[0]?.wake("task");
  await slept;
  assert.deepEqual(calls, ["accepted", "asleep", "CONNECTION_LOST", "asleep", "removed"]);
  assert.equal(sleep.takeParameters(1).memory, null);
});

test("without a watch, the manager is not told to end, and if it does, the next one starts", async () => {
  const { sleep, calls } = createSleep({ adds: false });
  sleep.offer(table);
  await settle();
  await sleep.sleep(known, never);
  assert.deepEqual(calls, []);
});

test("a table that is watched before its first manager sleeps if it rests, and is let go if it does not", async () => {
  const rest = { wakeMs: 1e6, memory: known };
  for (const prepared of [rest, null]) {
    const { sleep, calls } = createSleep();
    assert.equal(await sleep.begin(table), true);
    sleep.prepare(prepared);
    assert.equal(sleep.isPrepared, prepared !== null);
    assert.equal(sleep.takeRest(), prepared);
    if (prepared !== null) void sleep.sleep(rest.memory, never, rest.wakeMs);
    await settle();
    assert.deepEqual(calls, prepared === null ? ["removed"] : ["asleep"]);
  }
});

test("a table that is woken while it is examined does not fall asleep", async () => {
  const { sleep, calls, watched } = createSleep();
  await sleep.begin(table);
  watched[0]?.wake("task");
  await sleep.sleep(known, never, 1e6);
  assert.deepEqual(calls, ["removed"]);
  assert.equal(sleep.hasTask, true);
});

test("a table that cannot be watched, or whose lock is taken, needs its manager", async () => {
  for (const answers of [{ adds: false }, { locks: false }, { locks: null }]) {
    assert.equal(await createSleep(answers).sleep.begin(table), false);
  }
});

test("a stop ends the sleep", async () => {
  const { calls, fallAsleep } = createSleep();
  const stop = new AbortController();
  const { slept } = await fallAsleep(stop.signal);
  stop.abort();
  await slept;
  assert.deepEqual(calls, ["accepted", "asleep", "removed"]);
});

test("only managers among many that have no task sleep at once", () => {
  const { sleep } = createSleep();
  assert.deepEqual(
    [16, 17].map((managers) => sleep.takeParameters(managers).sleepsAtOnce),
    [false, true],
  );
});

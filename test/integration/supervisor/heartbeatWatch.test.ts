import assert from "node:assert/strict";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { HeartbeatWatch } from "../../../src/supervisor/heartbeatWatch.js";
import { test } from "../../support/limitedTest.js";

const limitMs = 1_000;
const everyMs = limitMs / 10;
/** How many checks without a heartbeat are allowed. */
const allowed = limitMs / everyMs - 1;

/** What the thread does when it is told to block: it waits until the test changes the gate. */
const block = "Atomics.add(gate, 1, 1); Atomics.wait(gate, 0, Atomics.load(gate, 0));";

/** Starts a thread that runs this code, and watches it. The test decides when a check takes place. */
async function watchThread(t: TestContext, code: string) {
  t.mock.timers.enable({ apis: ["setInterval"] });
  /** Element 0 opens the gate by each change, element 1 counts how many times the thread was blocked. */
  const gate = new Int32Array(new SharedArrayBuffer(8));
  const worker = new Worker(
    `const { parentPort, workerData: gate } = require("node:worker_threads");
     parentPort.on("message", (order) => {
       if (order === "block") { ${block} }
       else parentPort.postMessage("alive");
     });
     ${code}`,
    { eval: true, workerData: gate },
  );
  t.after(() => worker.terminate());
  await once(worker, "online");
  const counts = { asked: 0, answered: 0, frozen: 0 };
  const ask = (): void => {
    counts.asked += 1;
    worker.postMessage("alive?");
  };
  const watch = new HeartbeatWatch(worker, { limitMs, ask, onFreeze: () => (counts.frozen += 1) });
  t.after(watch.stop);
  worker.on("message", () => {
    counts.answered += 1;
    watch.answer();
  });
  return {
    counts,
    worker,
    idleMs: () => worker.performance.eventLoopUtilization().idle,
    check: (times: number) => {
      for (let done = 0; done < times; done += 1) t.mock.timers.tick(everyMs);
    },
    blocked: async (times: number) => await until(() => Atomics.load(gate, 1) === times),
    open: () => {
      Atomics.add(gate, 0, 1);
      Atomics.notify(gate, 0);
    },
  };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await pause(5);
}

test("a thread that waits for events is not disturbed", async (t) => {
  const { counts, idleMs, check } = await watchThread(t, "");
  await until(() => idleMs() > 0);
  for (let done = 0; done < 2 * allowed; done += 1) {
    const before = idleMs();
    await until(() => idleMs() > before);
    check(1);
  }
  assert.deepEqual(counts, { asked: 0, answered: 0, frozen: 0 });
});

test("a thread that is always busy is asked, and answers", async (t) => {
  const { counts, check } = await watchThread(t, "const work = () => setImmediate(work); work();");
  while (counts.answered < 2 * allowed) {
    check(1);
    await until(() => counts.answered === counts.asked);
  }
  assert.equal(counts.frozen, 0);
});

test("a blocked thread is asked once, and reported once when the limit has passed", async (t) => {
  const { counts, check, blocked } = await watchThread(t, block);
  await blocked(1);
  check(allowed);
  assert.deepEqual(counts, { asked: 1, answered: 0, frozen: 0 });
  check(20);
  assert.deepEqual(counts, { asked: 1, answered: 0, frozen: 1 });
});

test("a thread that was blocked has the whole limit again after its answer", async (t) => {
  const { counts, worker, check, blocked, open } = await watchThread(t, block);
  await blocked(1);
  check(allowed);
  open();
  await until(() => counts.answered === 1);
  worker.postMessage("block");
  await blocked(2);
  check(allowed);
  assert.deepEqual(counts, { asked: 2, answered: 1, frozen: 0 });
});

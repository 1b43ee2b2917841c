import assert from "node:assert/strict";
import { mock, test } from "node:test";
import * as fc from "fast-check";
import { WakeSignal } from "../../../src/shared/wakeSignal.js";

test("notify wakes the waiter", async () => {
  const signal = new WakeSignal();
  const waiting = signal.wait(2 ** 30);
  signal.notify();
  assert.equal(await waiting, true);
});

test("notifications without a waiter are remembered as one", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const signal = new WakeSignal();
  signal.notify();
  signal.notify();
  assert.equal(await signal.wait(1000), true);
  const second = signal.wait(1000);
  t.mock.timers.tick(1000);
  assert.equal(await second, false);
});

test("without a notification the waiter wakes after the timeout", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const signal = new WakeSignal();
  let woken = false;
  const waiting = signal.wait(1000).finally(() => (woken = true));
  t.mock.timers.tick(999);
  await Promise.resolve();
  assert.equal(woken, false);
  t.mock.timers.tick(1);
  assert.equal(await waiting, false);
});

test("no notification is lost, whenever it arrives", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const step = fc.constantFrom("notify", "wait", "pass");
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const signal = new WakeSignal();
        let waiting: Promise<boolean> | null = null;
        let isNotified = false;
        for (const each of steps) {
          if (each === "wait") waiting ??= signal.wait(1000);
          else if (each === "notify") {
            signal.notify();
            isNotified = true;
          } else mock.timers.tick(1000);
          // If someone waits, a notification or the timeout must end the wait with the right answer.
          if (waiting === null || (each === "wait" && !isNotified)) continue;
          assert.equal(await waiting, isNotified);
          waiting = null;
          isNotified = false;
        }
      }),
    );
  } finally {
    mock.timers.reset();
  }
});

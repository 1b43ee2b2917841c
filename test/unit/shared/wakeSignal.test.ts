import assert from "node:assert/strict";
import { mock, test } from "node:test";
import * as fc from "fast-check";
import { WakeSignal } from "../../../src/shared/wakeSignal.js";

test("a ring wakes the waiter", async () => {
  const bell = new WakeSignal();
  const waiting = bell.wait(2 ** 30);
  bell.notify();
  assert.equal(await waiting, true);
});

test("rings while nobody waits are kept as one", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const bell = new WakeSignal();
  bell.notify();
  bell.notify();
  assert.equal(await bell.wait(1000), true);
  const second = bell.wait(1000);
  t.mock.timers.tick(1000);
  assert.equal(await second, false);
});

test("without a ring the waiter wakes when the time has passed, and not before", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const bell = new WakeSignal();
  let woken = false;
  const waiting = bell.wait(1000).finally(() => (woken = true));
  t.mock.timers.tick(999);
  await Promise.resolve();
  assert.equal(woken, false);
  t.mock.timers.tick(1);
  assert.equal(await waiting, false);
});

test("no ring is lost, whenever it comes", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const step = fc.constantFrom("ring", "wait", "pass");
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const bell = new WakeSignal();
        let waiting: Promise<boolean> | null = null;
        let rung = false;
        for (const each of steps) {
          if (each === "wait") waiting ??= bell.wait(1000);
          else if (each === "ring") {
            bell.notify();
            rung = true;
          } else mock.timers.tick(1000);
          // With a waiter, a ring or the end of its time must wake it with the right answer.
          if (waiting === null || (each === "wait" && !rung)) continue;
          assert.equal(await waiting, rung);
          waiting = null;
          rung = false;
        }
      }),
    );
  } finally {
    mock.timers.reset();
  }
});

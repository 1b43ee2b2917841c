import assert from "node:assert/strict";
import { mock, test } from "node:test";
import * as fc from "fast-check";
import { WakeSignal } from "../../../src/shared/wakeSignal.js";

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

import assert from "node:assert/strict";
import { test } from "node:test";
import { CheckTimer } from "../../../../src/manager/sessions/slowRunMonitor.js";

/** Blocks this thread for `ms` milliseconds. */
function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

test("the timer fires on a thread that is always late", async () => {
  let checks = 0;
  const timer = new CheckTimer(10, () => (checks += 1));
  timer.start();
  for (let round = 0; round < 20; round += 1) {
    block(30);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(checks, 1);
});

test("a late timer lets pending messages be handled first", async () => {
  const events: string[] = [];
  const checked = new Promise<void>((resolve) => {
    const timer = new CheckTimer(10, () => {
      events.push("checked");
      resolve();
    });
    timer.start();
  });
  const { port1, port2 } = new MessageChannel();
  port2.addEventListener("message", () => events.push("received"));
  port2.start();
  block(30);
  port1.postMessage("pending");
  // This timer keeps the process alive, because the timer of a check does not.
  const keepAlive = setTimeout(() => {}, 10_000);
  await checked;
  clearTimeout(keepAlive);
  port1.close();
  assert.deepEqual(events, ["received", "checked"]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Watch } from "../../../../src/manager/sessions/watch.js";

/** Keeps this thread from everything else for so long. */
function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

test("a thread that is always late looks all the same", async () => {
  let looks = 0;
  const watch = new Watch(10, () => (looks += 1));
  watch.start();
  for (let round = 0; round < 20; round += 1) {
    block(30);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(looks, 1);
});

test("one that comes late hears first what came meanwhile", async () => {
  const said: string[] = [];
  const looked = new Promise<void>((resolve) => {
    const watch = new Watch(10, () => {
      said.push("looked");
      resolve();
    });
    watch.start();
  });
  const { port1, port2 } = new MessageChannel();
  port2.addEventListener("message", () => said.push("heard"));
  port2.start();
  block(30);
  port1.postMessage("came meanwhile");
  // The loop is kept alive, which a watch does not.
  const timer = setTimeout(() => {}, 10_000);
  await looked;
  clearTimeout(timer);
  port1.close();
  assert.deepEqual(said, ["heard", "looked"]);
});

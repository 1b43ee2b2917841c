import assert from "node:assert/strict";
import { once } from "node:events";
import { SpareWorkers } from "../../../src/supervisor/spareWorkers.js";
import { test } from "../../support/limitedTest.js";

test("a thread that waits is taken once, and a new one comes when none waits", async () => {
  const spare = new SpareWorkers();
  spare.keep(1);
  const first = spare.take();
  const second = spare.take();
  assert.notEqual(first.worker.threadId, second.worker.threadId);
  // It was started before the other one was asked for.
  assert.ok(first.worker.threadId < second.worker.threadId);
  await Promise.all([first.worker.terminate(), second.worker.terminate()]);
});

test("a thread that died while it waited is not given away, and its place is filled again", async () => {
  const spare = new SpareWorkers();
  spare.keep(1);
  const taken = spare.take();
  await once(taken.worker, "online");
  spare.keep(1);
  const [dies] = spare.waiting;
  await Promise.all([once(dies?.worker ?? taken.worker, "exit"), dies?.worker.terminate()]);
  assert.equal(spare.waiting.length, 0);
  spare.keep(1);
  assert.equal(spare.waiting.length, 1);
  assert.notEqual(spare.waiting[0], dies);
  await spare.end();
  await taken.worker.terminate();
});

test("no thread is left after the end", async () => {
  const spare = new SpareWorkers();
  spare.keep(2);
  const exits = spare.waiting.map(({ worker }) => once(worker, "exit"));
  await spare.end();
  await Promise.all(exits);
  assert.equal(spare.waiting.length, 0);
});

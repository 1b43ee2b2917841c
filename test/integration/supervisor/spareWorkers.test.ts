import assert from "node:assert/strict";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { SpareWorkers } from "../../../src/supervisor/spareWorkers.js";
import { test } from "../../support/limitedTest.js";

test("returns an idle thread once, and a new one when none is idle", async () => {
  const spare = new SpareWorkers();
  spare.keep(1);
  const first = spare.take();
  const second = spare.take();
  assert.notEqual(first.worker.threadId, second.worker.threadId);
  // The first thread was started before the second one was requested.
  assert.ok(first.worker.threadId < second.worker.threadId);
  await Promise.all([first.worker.terminate(), second.worker.terminate()]);
});

test("drops an idle thread that died, and replaces it", async () => {
  const spare = new SpareWorkers();
  spare.keep(1);
  const taken = spare.take();
  await once(taken.worker, "online");
  spare.keep(1);
  const [dies] = spare.idle;
  await Promise.all([once(dies?.worker ?? taken.worker, "exit"), dies?.worker.terminate()]);
  assert.equal(spare.idle.length, 0);
  spare.keep(1);
  assert.equal(spare.idle.length, 1);
  assert.notEqual(spare.idle[0], dies);
  await spare.terminate();
  await taken.worker.terminate();
});

test("leaves no thread when terminated", async () => {
  const spare = new SpareWorkers();
  spare.keep(2);
  const exits = spare.idle.map(({ worker }) => once(worker, "exit"));
  await spare.terminate();
  await Promise.all(exits);
  assert.equal(spare.idle.length, 0);
});

test("a manager loads neither fetch nor the OpenTelemetry API, which would take memory in each thread", async (t) => {
  const file = new URL("../../../src/manager/thread.cjs", import.meta.url).pathname;
  const code = `require(${JSON.stringify(file)});
    const loaded = [...process.moduleLoadList, ...Object.keys(require.cache)];
    require("node:worker_threads").parentPort.postMessage(loaded)`;
  const worker = new Worker(code, { eval: true });
  t.after(() => worker.terminate());
  const loaded = await new Promise<string[]>((resolve) => worker.once("message", resolve));
  const matching = (pattern: RegExp): string[] => loaded.filter((name) => pattern.test(name));
  assert.ok(matching(/ net$/).length > 0 && matching(/\/pg\//).length > 0);
  assert.deepEqual(matching(/undici|opentelemetry/), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunCancellation } from "../../../../src/executor/run/cancellation.js";

function make(timeoutMs = 0) {
  const cancels: number[] = [];
  const cancellation = new RunCancellation(timeoutMs, () => cancels.push(cancels.length));
  return { cancels, cancellation };
}

test("a cancel requested before the start is sent then, and none is sent after the end", () => {
  const early = make();
  early.cancellation.request("abort");
  assert.equal(early.cancels.length, 0);
  early.cancellation.start();
  assert.equal(early.cancels.length, 1);
  const late = make();
  late.cancellation.start();
  late.cancellation.end();
  late.cancellation.request("timeout");
  assert.deepEqual([late.cancels.length, late.cancellation.reason], [0, null]);
});

test("only the first reason counts, and one cancel is sent", () => {
  const { cancels, cancellation } = make();
  cancellation.start();
  cancellation.request("output");
  cancellation.request("timeout");
  cancellation.request("abort");
  assert.equal(cancellation.reason, "output");
  assert.equal(cancels.length, 1);
});

test("the timeout counts from the first start, across retries", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { cancels, cancellation } = make(1_000);
  context.mock.timers.tick(5_000);
  cancellation.start();
  context.mock.timers.tick(600);
  cancellation.suspend();
  cancellation.start();
  context.mock.timers.tick(399);
  assert.equal(cancellation.reason, null);
  context.mock.timers.tick(1);
  assert.equal(cancellation.reason, "timeout");
  assert.equal(cancels.length, 1);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunCancellation } from "../../../../src/executor/run/cancellation.js";

function make(timeoutMs = 0) {
  const cancels: number[] = [];
  const cancellation = new RunCancellation(timeoutMs, () => cancels.push(cancels.length));
  return { cancels, cancellation };
}

test("a cancel requested before the run starts is sent when it starts", () => {
  const { cancels, cancellation } = make();
  cancellation.request("abort");
  assert.equal(cancels.length, 0);
  cancellation.start();
  assert.equal(cancels.length, 1);
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

test("no cancel is sent after the run has ended", () => {
  const { cancels, cancellation } = make();
  cancellation.start();
  cancellation.end();
  cancellation.request("timeout");
  assert.equal(cancels.length, 0);
  assert.equal(cancellation.reason, null);
});

test("a run that continues is cancelled again after each answer, until it ends", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { cancels, cancellation } = make();
  cancellation.start();
  cancellation.request("timeout");
  context.mock.timers.tick(60_000);
  assert.equal(cancels.length, 1);
  cancellation.cancelAnswered();
  context.mock.timers.tick(60_000);
  assert.equal(cancels.length, 2);
  cancellation.cancelAnswered();
  cancellation.end();
  context.mock.timers.tick(60_000);
  assert.equal(cancels.length, 2);
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

test("the timeout ends with the run", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { cancels, cancellation } = make(1_000);
  cancellation.start();
  cancellation.end();
  context.mock.timers.tick(60_000);
  assert.equal(cancellation.reason, null);
  assert.equal(cancels.length, 0);
});

test("it settles only when the pending cancel has been answered", async () => {
  const { cancellation } = make();
  await cancellation.whenSettled();
  cancellation.start();
  cancellation.request("timeout");
  cancellation.end();
  let settled = false;
  const waiting = cancellation.whenSettled().then(() => (settled = true));
  await new Promise(setImmediate);
  assert.equal(settled, false);
  cancellation.cancelAnswered();
  await waiting;
});

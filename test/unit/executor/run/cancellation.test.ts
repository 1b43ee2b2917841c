import assert from "node:assert/strict";
import { test } from "node:test";
import { RunCancellation } from "../../../../src/executor/run/cancellation.js";

function make() {
  const asked: number[] = [];
  const cancellation = new RunCancellation(() => asked.push(asked.length));
  return { asked, cancellation };
}

test("nothing is asked for before the run's settings stand, then at once", () => {
  const { asked, cancellation } = make();
  cancellation.request("abort");
  assert.equal(asked.length, 0);
  cancellation.begin();
  assert.equal(asked.length, 1);
});

test("the first reason stays, and is asked for once", () => {
  const { asked, cancellation } = make();
  cancellation.begin();
  cancellation.request("output");
  cancellation.request("timeout");
  cancellation.request("abort");
  assert.equal(cancellation.reason, "output");
  assert.equal(asked.length, 1);
});

test("nothing is asked for once the run has ended", () => {
  const { asked, cancellation } = make();
  cancellation.begin();
  cancellation.end();
  cancellation.request("timeout");
  assert.equal(asked.length, 0);
  assert.equal(cancellation.reason, null);
});

test("a run that goes on is asked for again after its answer, until it ends", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { asked, cancellation } = make();
  cancellation.begin();
  cancellation.request("timeout");
  context.mock.timers.tick(60_000);
  assert.equal(asked.length, 1);
  cancellation.answered();
  context.mock.timers.tick(60_000);
  assert.equal(asked.length, 2);
  cancellation.answered();
  cancellation.end();
  context.mock.timers.tick(60_000);
  assert.equal(asked.length, 2);
});

test("it is settled when what was asked for has been answered, and not before", async () => {
  const { cancellation } = make();
  await cancellation.settled();
  cancellation.begin();
  cancellation.request("timeout");
  cancellation.end();
  let settled = false;
  const waiting = cancellation.settled().then(() => (settled = true));
  await new Promise(setImmediate);
  assert.equal(settled, false);
  cancellation.answered();
  await waiting;
});

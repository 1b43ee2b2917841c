import assert from "node:assert/strict";
import { PipelineDepth } from "../../../../src/executor/session/pipeline.js";
import { test } from "../../../support/limitedTest.js";

/** Returns the depth after fifty batches, each with as many runs as the depth then allows. */
function settledDepth(durationMs: (isLast: boolean) => number): number {
  const depth = new PipelineDepth();
  for (let batch = 0; batch < 50; batch += 1) {
    const { maxRuns: runs } = depth;
    for (let run = 1; run <= runs; run += 1) depth.addDuration(durationMs(run === runs));
  }
  return depth.maxRuns;
}

test("up to 32 short runs are pipelined, but only four long ones", () => {
  assert.equal(
    settledDepth(() => 0.1),
    32,
  );
  assert.equal(
    settledDepth(() => 5),
    4,
  );
});

test("the idle time after the last run does not reduce the depth", () => {
  assert.equal(
    settledDepth((isLast) => (isLast ? 20 : 0.1)),
    32,
  );
});

test("the depth falls soon when runs become long and recovers when they become short", () => {
  const depth = new PipelineDepth();
  for (let run = 0; run < 10_000; run += 1) depth.addDuration(0);
  for (let run = 0; run < 12; run += 1) depth.addDuration(20);
  assert.equal(depth.maxRuns, 4);
  for (let run = 0; run < 8; run += 1) depth.addDuration(0.1);
  assert.equal(depth.maxRuns, 32);
});

test("the depth stays at 16 while one of the recent runs was slow", () => {
  const depth = new PipelineDepth();
  for (let run = 0; run < 10_000; run += 1) depth.addDuration(run % 100 === 0 ? 1000 : 0.1);
  assert.equal(depth.maxRuns, 16);
  for (let run = 0; run < 256; run += 1) depth.addDuration(0.1);
  assert.equal(depth.maxRuns, 32);
});

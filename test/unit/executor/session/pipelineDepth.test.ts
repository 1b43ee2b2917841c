import assert from "node:assert/strict";
import { PipelineDepth } from "../../../../src/executor/session/pipelineDepth.js";
import { test } from "../../../support/limitedTest.js";

/** How many runs are on the wire in the end, sent again and again when all before them are done. */
function inTheEnd(tookMs: (last: boolean) => number): number {
  const depth = new PipelineDepth();
  for (let time = 0; time < 50; time += 1) {
    const { runs } = depth;
    for (let run = 1; run <= runs; run += 1) depth.took(tookMs(run === runs));
  }
  return depth.runs;
}

test("up to 32 short runs are on a wire at once, and only four long ones", () => {
  assert.equal(
    inTheEnd(() => 0.1),
    32,
  );
  assert.equal(
    inTheEnd(() => 5),
    4,
  );
});

test("that the last on a wire lasts until the next arrives leaves no fewer on it", () => {
  assert.equal(
    inTheEnd((last) => (last ? 20 : 0.1)),
    32,
  );
});

test("runs that become long are soon fewer, and those that become short more again", () => {
  const depth = new PipelineDepth();
  for (let run = 0; run < 10_000; run += 1) depth.took(0);
  for (let run = 0; run < 12; run += 1) depth.took(20);
  assert.equal(depth.runs, 4);
  for (let run = 0; run < 8; run += 1) depth.took(0.1);
  assert.equal(depth.runs, 32);
});

test("as long as one of the last runs was long, no more than sixteen would wait behind another", () => {
  const depth = new PipelineDepth();
  for (let run = 0; run < 10_000; run += 1) depth.took(run % 100 === 0 ? 1000 : 0.1);
  assert.equal(depth.runs, 16);
  for (let run = 0; run < 256; run += 1) depth.took(0.1);
  assert.equal(depth.runs, 32);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { bucketOf } from "../../../src/shared/statistics.js";
import { History } from "../../../src/web/data/history.js";
import { workingManager } from "../../support/webServer.js";

const durations = (...all: number[]) => ({
  counts: Object.fromEntries(all.map((each) => [bucketOf(each), all.filter((other) => other === each).length])),
  sum: all.reduce((sum, each) => sum + each, 0),
});

test("knows the waits and run times of all runs that were reported, also of those with older ids", () => {
  const history = new History();
  assert.equal(history.latencies(), null);
  history.add({ ...workingManager, runs: durations(70), waits: durations(540) });
  history.add({ ...workingManager, runs: durations(70, 70, 70, 1), waits: durations(540, 540, 540, 540) });
  const { waitMs, runMs, measured } = history.latencies() ?? {};
  assert.equal(measured?.runs, 4);
  for (const [found, ms] of [
    [runMs?.p50, 70_000],
    [runMs?.p95, 70_000],
    [waitMs?.p50, 540_000],
  ] as const) {
    assert.ok(found !== undefined && Math.abs(found / ms - 1) <= 0.025, `${found} for ${ms}`);
  }
});

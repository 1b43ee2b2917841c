import assert from "node:assert/strict";
import { test } from "node:test";
import {
  addDurations,
  bucketOf,
  durationBounds,
  metricBounds,
  noDurations,
  quantile,
  type Durations,
} from "../../../src/shared/statistics.js";

const of = (...seconds: number[]): Durations =>
  seconds.reduce((all, each) => addDurations(all, { counts: { [bucketOf(each)]: 1 }, sum: each }), noDurations);

test("a quantile is off by at most 2.5 %", () => {
  for (const seconds of [0.000_3, 0.002, 0.07, 1, 2.49, 31, 70, 540, 2_000, 86_400, 2_000_000]) {
    const found = quantile(of(seconds, seconds).counts, 0.5) ?? NaN;
    assert.ok(Math.abs(found / seconds - 1) <= 0.025, `${seconds} became ${found}`);
  }
  const { counts } = of(...Array.from({ length: 100 }, (_, index) => index + 1));
  for (const [fraction, truth] of [
    [0.01, 1],
    [0.5, 50],
    [0.95, 95],
    [1, 100],
  ] as const) {
    const found = quantile(counts, fraction) ?? NaN;
    assert.ok(Math.abs(found / truth - 1) <= 0.025, `${truth} became ${found}`);
  }
  assert.equal(quantile(of(0).counts, 0.5), 0);
  assert.equal(quantile(of().counts, 0.5), null);
});

test("the bounds of the metrics are among those of the buckets", () => {
  assert.ok(metricBounds.every((bound) => durationBounds.includes(bound)));
  assert.ok(durationBounds.every((bound, index) => bucketOf(bound) === index));
  assert.equal(bucketOf(1e9), durationBounds.length);
});

test("durations are subtracted", () => {
  assert.deepEqual(addDurations(of(1, 70, 70), of(1, 70), -1), of(70));
  assert.deepEqual(addDurations(of(3), of(3), -1), noDurations);
});

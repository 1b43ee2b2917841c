import assert from "node:assert/strict";
import { test } from "node:test";
import { loneIndexes, splitLast, withGaps } from "../../../../src/web/page/plotGaps.js";

void test("short gaps between known values are drawn over, and what is before and after these is not", () => {
  const values = [null, 1, null, 2, null, null, 3, null];
  assert.deepEqual(withGaps(values, 0), values);
  assert.deepEqual(withGaps(values, 1), [null, 1, undefined, 2, null, null, 3, null]);
  assert.deepEqual(withGaps(values, 2), [null, 1, undefined, 2, undefined, undefined, 3, null]);
  assert.deepEqual(withGaps([null, null], 9), [null, null]);
});

void test("a value between two gaps is drawn as a point", () => {
  assert.deepEqual(loneIndexes([1, null, 2, 3, null, 4]), [0, 5]);
  assert.deepEqual(loneIndexes([1, undefined, 2, null, null]), []);
  assert.deepEqual(loneIndexes([]), []);
});

void test("the last value has a line of its own, which begins at the value before it", () => {
  assert.deepEqual(splitLast([1, 2, 3]), [
    [1, 2, null],
    [null, 2, 3],
  ]);
  assert.deepEqual(splitLast([1]), [[null], [1]]);
});

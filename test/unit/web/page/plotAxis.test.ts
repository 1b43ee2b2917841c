import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as fc from "fast-check";
import { axisLabels, roundAxis } from "../../../../src/web/page/plotAxis.js";

void describe("a vertical axis has round labels", () => {
  for (const [max, unit, labels] of [
    [0, "count", [0, 1]],
    [1, "count", [0, 1]],
    [4, "count", [0, 1, 2, 3, 4]],
    [7.6, "count", [0, 2, 4, 6, 8]],
    [8, "count", [0, 2, 4, 6, 8]],
    [9, "count", [0, 5, 10]],
    [1234, "count", [0, 500, 1000, 1500]],
    [0.3, "rate", [0, 0.1, 0.2, 0.3]],
    [0.004, "rate", [0, 0.01]],
    [7, "milliseconds", [0, 2, 4, 6, 8]],
    [3_000, "milliseconds", [0, 1_000, 2_000, 3_000]],
    [90_000, "milliseconds", [0, 30_000, 60_000, 90_000]],
    [5 * 3_600_000, "milliseconds", [0, 2, 4, 6].map((hours) => hours * 3_600_000)],
  ] as const) {
    void test(`up to ${max} (${unit})`, () => assert.deepEqual(axisLabels(roundAxis(max, unit)), labels));
  }
});

void test("an axis reaches its largest value, has two to six labels, and each is a multiple of the distance", () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0, max: 1e11, noNaN: true }),
      fc.constantFrom("count" as const, "rate" as const, "milliseconds" as const),
      (max, unit) => {
        const axis = roundAxis(max, unit);
        const labels = axisLabels(axis);
        assert.ok(
          axis.top >= max * (1 - 1e-9) && labels.length >= 2 && labels.length <= 6,
          JSON.stringify({ axis, labels }),
        );
        assert.ok(Math.abs((labels.at(-1) ?? 0) - axis.top) <= axis.top * 1e-9);
      },
    ),
  );
});

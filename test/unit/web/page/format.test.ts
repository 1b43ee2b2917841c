import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { relativeTimeText } from "../../../../src/web/page/format.js";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

void describe("relative times are rounded to one unit", () => {
  for (const [ms, shown] of [
    [-1_900, "2 s ago"],
    [-499, "now"],
    [499, "now"],
    [1_400, "in 1 s"],
    [1_900, "in 2 s"],
    [89 * second, "in 89 s"],
    [91 * second, "in 2 min"],
    [20 * minute - 5 * second, "in 20 min"],
    [-(89 * minute), "89 min ago"],
    [-(2 * hour + 59 * minute + 45 * second), "3 h ago"],
    [35 * hour, "in 35 h"],
    [37 * hour, "in 2 d"],
    [-(9 * day + 13 * hour), "10 d ago"],
  ] as const) {
    void test(`${ms} ms from now: ${shown}`, () => {
      const now = Date.parse("2026-03-01T12:00:00Z");
      assert.equal(relativeTimeText(new Date(now + ms).toISOString(), now), shown);
    });
  }
});

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { formatDuration, formatWholeSeconds } from "../../../src/shared/formatDuration.js";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

/** Durations of a minute or more, which both functions format in the same way. */
const long: readonly (readonly [number, string])[] = [
  [minute, "1 min"],
  [minute + 29.4 * second, "1 min 29 s"],
  [minute + 29.5 * second, "1 min 30 s"],
  [2 * minute - 500, "2 min"],
  [hour - 501, "59 min 59 s"],
  [hour - 500, "1 h"],
  [2 * hour + 5 * minute + 29 * second, "2 h 5 min"],
  [2 * hour + 5 * minute + 30 * second, "2 h 6 min"],
  [23 * hour + 45 * minute, "23 h 45 min"],
  [day - 30 * second, "1 d"],
  [3 * day + 4 * hour + 29 * minute, "3 d 4 h"],
  [3 * day + 4 * hour + 30 * minute, "3 d 5 h"],
  [400 * day, "400 d"],
];

void describe("durations are rounded, not cut", () => {
  for (const [ms, shown] of [
    [-1_960, "-2.0 s"],
    [0, "0 ms"],
    [0.04, "0.04 ms"],
    [0.099, "0.1 ms"],
    [0.96, "1 ms"],
    [1.9, "2 ms"],
    [999.4, "999 ms"],
    [999.6, "1.0 s"],
    [1_900, "1.9 s"],
    [1_960, "2.0 s"],
    [9_949, "9.9 s"],
    [9_960, "10 s"],
    [59_400, "59 s"],
    [59_500, "1 min"],
    ...long,
  ] as const) {
    void test(`${ms} ms: ${shown}`, () => assert.equal(formatDuration(ms), shown));
  }

  for (const [ms, shown] of [
    [499, "0 s"],
    [1_499, "1 s"],
    [1_900, "2 s"],
    [59_499, "59 s"],
    [59_500, "1 min"],
    ...long,
  ] as const) {
    void test(`${ms} ms in whole seconds: ${shown}`, () => assert.equal(formatWholeSeconds(ms), shown));
  }
});

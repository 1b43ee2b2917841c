import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { formatDuration as onTerminal } from "../../../../src/cli/terminal/format.js";
import { relativeTimeText, durationText, wholeSecondsText } from "../../../../src/web/page/format.js";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

/** Lengths of an hour or more, and some of minutes, as both the page and the terminal show them. */
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

void describe("lengths of time are rounded, not cut", () => {
  for (const [ms, shown] of [
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
    void test(`${ms} ms on the page: ${shown}`, () => assert.equal(durationText(ms), shown));
  }

  for (const [ms, shown] of [
    [0.3, "0.3 ms"],
    [0.96, "1 ms"],
    [999.4, "999 ms"],
    [999.6, "1.0 s"],
    [1_960, "2.0 s"],
    [59_940, "59.9 s"],
    [59_960, "1 min"],
    [-1_960, "-2.0 s"],
    ...long,
  ] as const) {
    void test(`${ms} ms on a terminal: ${shown}`, () => assert.equal(onTerminal(ms), shown));
  }

  for (const [ms, shown] of [
    [499, "0 s"],
    [1_499, "1 s"],
    [1_900, "2 s"],
    [59_499, "59 s"],
    [59_500, "1 min"],
    ...long,
  ] as const) {
    void test(`${ms} ms of a task that runs: ${shown}`, () => assert.equal(wholeSecondsText(ms), shown));
  }

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

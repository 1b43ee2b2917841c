import assert from "node:assert/strict";
import { test } from "node:test";
import { formatLateness } from "../../../src/shared/formatLateness.js";

test("calls a schedule late from five seconds on", () => {
  assert.deepEqual([null, 0, 4_999, 5_000].map(formatLateness), [null, null, null, "late by 5.0 s"]);
});

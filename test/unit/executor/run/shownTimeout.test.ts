import assert from "node:assert/strict";
import { test } from "node:test";
import { shownTimeoutMs } from "../../../../src/executor/run/runSettings.sql.js";

void test("a timeout as the server shows it is converted to milliseconds", () => {
  const shown = ["0", "1ms", "1500ms", "5s", "2min", "3h", "24d"];
  assert.deepEqual(shown.map(shownTimeoutMs), [0, 1, 1500, 5000, 120_000, 10_800_000, 2_073_600_000]);
});

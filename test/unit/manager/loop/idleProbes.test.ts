import assert from "node:assert/strict";
import { test } from "node:test";
import { sleeperQuietMs } from "../../../../src/manager/loop/idleProbes.js";

test("managers in deep sleep probe less often the more there are, within bounds", () => {
  const counts = [1, 22, 23, 100, 150, 1_000];
  assert.deepEqual(counts.map(sleeperQuietMs), [4_500, 4_500, 4_600, 20_000, 30_000, 30_000]);
});

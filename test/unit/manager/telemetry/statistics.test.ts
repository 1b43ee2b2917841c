import assert from "node:assert/strict";
import { test } from "node:test";
import { Statistics } from "../../../../src/manager/telemetry/statistics.js";
import type { FromManager } from "../../../../src/shared/ipc/managerMessages.js";
import { noCounts } from "../../../../src/shared/statistics.js";

test("a task that ends with its rescue counts as finished, failed or gone", () => {
  const sent: FromManager[] = [];
  const statistics = new Statistics({
    send: (message) => void sent.push(message),
    load: () => ({ running: 0, overruns: 0, sessions: 0, shares: {} }),
  });
  statistics.rescued(["planned", "done", "failed", "replaced", "kept", "failed"]);
  statistics.rescued([]);
  statistics.report();
  statistics.report();
  const counts = sent.map((message) => (message.type === "statistics" ? message.counts : null));
  assert.deepEqual(counts, [{ ...noCounts, rescued: 6, rescues: 1, done: 1, failed: 2, gone: 1 }]);
});

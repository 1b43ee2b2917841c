import assert from "node:assert/strict";
import { test } from "node:test";
import { EventEmitter } from "eventemitter3";
import { noCounts, noDurations } from "../../../src/shared/statistics.js";
import { ClusterStatusBoard } from "../../../src/supervisor/clusterStatusBoard.js";
import type { ManagerThreadEvents } from "../../../src/supervisor/managerThread.js";

const worked = {
  type: "statistics",
  counts: { ...noCounts, done: 2 },
  retries: { "40": 3 },
  webhooks: { ends: { accepted: 4, failed: 0, dropped: 0 } },
  claims: noDurations,
  runs: noDurations,
  waits: noDurations,
  running: 5,
  overruns: 0,
  sessions: 6,
  shares: { a: 1 },
} as const;

test("the counters of a manager that replaces another one go on, and it runs nothing yet", () => {
  const board = new ClusterStatusBoard();
  const [first, second] = [new EventEmitter<ManagerThreadEvents>(), new EventEmitter<ManagerThreadEvents>()];
  board.follow({ key: "k" }, first);
  first.emit("message", worked);
  board.follow({ key: "k" }, second);
  second.emit("message", { ...worked, running: 0, sessions: 0, shares: {} });
  const { counts, retries, webhooks, running, sessions, shares, state } = board.manager("k") ?? {};
  assert.deepEqual(
    { done: counts?.done, retries, webhooks, running, sessions, shares, state },
    {
      done: 4,
      retries: { "40": 6 },
      webhooks: { ends: { accepted: 8, failed: 0, dropped: 0 } },
      running: 0,
      sessions: 0,
      shares: {},
      state: "starting",
    },
  );
});

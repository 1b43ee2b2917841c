import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { it } from "node:test";
import { Executors } from "../../src/manager/executors.js";
import { RunTimes } from "../../src/manager/runTimes.js";
import { Sessions } from "../../src/manager/sessions.js";
import { Workforce } from "../../src/manager/workforce.js";
import { silentLog } from "../support/taskTables.js";

/** The pause of one whose sessions are never opened, right after so many refusals, in ms. */
function refused(times: number, longestPauseMs: number): number {
  const executors = Object.create(Executors.prototype);
  const sessions = Object.create(Sessions.prototype);
  const workforce = new Workforce({
    sessions,
    executors,
    runTimes: new RunTimes(),
    send: () => {},
    longestPauseMs: () => longestPauseMs,
    log: silentLog,
  });
  for (let count = 0; count < times; count += 1) {
    const until = performance.now() + (workforce.pauseMs ?? 0);
    while (performance.now() < until) continue;
    workforce.refused("no");
  }
  return workforce.pauseMs ?? 0;
}

it("waits longer and longer before sessions are opened again, but no longer than it may", () => {
  const pauses = [refused(1, 60_000), refused(4, 60_000), refused(6, 40)];
  const [first = 0, fourth = 0, limited = 0] = pauses;
  assert.ok(first <= 100, String(pauses));
  assert.ok(fourth > 400, String(pauses));
  assert.ok(limited <= 40, String(pauses));
});

/** How many more sessions are looked ahead for when all of so many are stuck. */
function lookAhead(size: number, runTimes: RunTimes): number {
  const workforce = new Workforce({
    sessions: Object.create(Sessions.prototype, { size: { value: size }, stuck: { value: size } }),
    executors: Object.create(Executors.prototype),
    runTimes,
    send: () => {},
    longestPauseMs: () => 60_000,
    log: silentLog,
  });
  workforce.grant(1_000, 1);
  return workforce.lookAhead;
}

it("tries more sessions the more are stuck, as long as it is not known how long runs take", () => {
  const unknown = new RunTimes();
  assert.ok(lookAhead(30, unknown) >= 30);
  assert.equal(lookAhead(500, unknown), lookAhead(100, unknown));
  const short = new RunTimes();
  for (let run = 0; run < 200; run += 1) short.add(1, 1);
  assert.ok(lookAhead(30, short) <= Math.max(16, 2 * availableParallelism()));
});

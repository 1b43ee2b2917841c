import assert from "node:assert/strict";
import { test } from "node:test";
import { QueueCapacity } from "../../../../src/manager/claim/queueCapacity.js";
import { elapsedMs } from "../../../../src/manager/model/elapsedMs.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import type { QueueableSession } from "../../../../src/manager/model/tasks.js";

test("elapsed time between timestamps is exact to the microsecond", () => {
  const elapsed = elapsedMs("2026-01-02T03:04:59.999750Z", "2026-01-02T03:05:00.001000Z");
  assert.equal(elapsed.toFixed(3), "1.250");
  const within = elapsedMs("2026-01-02T03:04:05.000750Z", "2026-01-02T03:04:05.001000Z");
  assert.equal(within.toFixed(3), "0.250");
  const overDays = elapsedMs("2026-01-31T23:59:59.000000Z", "2026-02-02T00:00:00.500000Z");
  assert.equal(overDays, 86_401_500);
  assert.equal(elapsedMs("", "2026-01-02T03:04:05.000000Z"), NaN);
});

test("the expected run time is that of the group, or of all runs if the group has none", () => {
  const times = new RunTimes();
  assert.equal(times.expectedMs(1), null);
  for (let each = 0; each < 200; each += 1) {
    times.add(1, 3);
    times.add(2, 40);
  }
  assert.equal(times.expectedMs(1)?.toFixed(6), "3.000000");
  assert.equal(times.expectedMs(2)?.toFixed(6), "40.000000");
  const other = times.expectedMs(3) ?? 0;
  assert.ok(other > 3 && other < 40);
  assert.deepEqual([times.count(1), times.count(3), times.count()], [200, 0, 400]);
});

test("a few long runs among many short ones leave the median short", () => {
  const times = new RunTimes();
  for (let each = 0; each < 300; each += 1) times.add(1, each % 5 === 0 ? 1000 : 1);
  assert.ok(times.medianMs < 10, `${times.medianMs}`);
});

function session(number: number, aheadMs: number, groups: readonly number[]): QueueableSession {
  return { number, owner: `owner ${number}`, pid: number, expectedMs: aheadMs, groups };
}

const known = new RunTimes();
for (let each = 0; each < 100; each += 1) {
  known.add(1, 5);
  known.add(2, 100);
}

test("queue slots behind a group's own tasks are spread evenly, up to the limit of a session", () => {
  const places = new QueueCapacity([session(1, 0, [1]), session(2, 10, [1]), session(3, 0, [2])], known);
  const owners = places.takeOwn(1, 100).map(({ owner }) => owner);
  assert.deepEqual(owners.toSorted(), [
    ...Array.from({ length: 5 }, () => "owner 1"),
    ...Array.from({ length: 3 }, () => "owner 2"),
  ]);
  assert.deepEqual(owners.slice(0, 2), ["owner 1", "owner 1"]);
});

test("the number of queue slots behind a group's own tasks is limited by the request and by the samples", () => {
  const places = new QueueCapacity([session(1, 0, [1, 9])], known);
  assert.equal(places.takeOwn(1, 2).length, 2);
  const barely = new RunTimes();
  barely.add(9, 0.1);
  assert.equal(new QueueCapacity([session(1, 0, [9])], barely).takeOwn(9, 100).length, 2);
});

test("only tasks that are expected to be short may take any queue slot", () => {
  const places = new QueueCapacity([session(1, 0, [7])], known);
  const suits = (hash: number, running = 0): boolean => places.isShort({ hash, running });
  assert.deepEqual([suits(1), suits(1, 1), suits(2)], [true, true, false]);
  assert.equal(new QueueCapacity([], new RunTimes()).isShort({ hash: 1, running: 0 }), false);
  let count = 0;
  while (places.takeAny(1) !== null) count += 1;
  assert.equal(count, 3);
});

test("runs of other groups stand in for a new group until its first task runs", () => {
  const short = new RunTimes();
  short.add(1, 1);
  const places = new QueueCapacity([session(1, 0, [1])], short);
  assert.deepEqual(
    [0, 1].map((running) => places.isShort({ hash: 9, running })),
    [true, false],
  );
});

test("reserved sessions have no queue slots", () => {
  const places = new QueueCapacity([session(1, 1, [1]), session(2, 4, [1])], known);
  places.reserve(1);
  assert.equal(places.takeAny(1)?.owner, "owner 2");
  assert.deepEqual(new Set(places.takeOwn(1, 9).map(({ owner }) => owner)), new Set(["owner 2"]));
  places.reserve(5);
  assert.ok(places.isExhausted);
});

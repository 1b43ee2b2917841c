import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import type { RunResult } from "../../../../src/shared/ipc/run.js";

const mebi = 1024 * 1024;

function ended(id: number, output: string | null = null): Extract<RunResult, { outcome: "ended" }> {
  const fixed = { session: 1, id: String(id), start: "", stop: "", error: null, sqlstate: null, committed: false };
  return { outcome: "ended", ...fixed, output };
}

const queued = { task: { hash: 1, max: 0, mayPause: false }, hasPlainEnd: false };

const released = (id: number): RunResult => ({ outcome: "released", session: 1, id: String(id) });

const ids = (list: readonly { id: string }[]): number[] => list.map(({ id }) => Number(id));

test("taking, deferring and requeueing loses and duplicates nothing", () => {
  const step = fc.constantFrom("result", "released", "write", "fail", "defer", "requeue");
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const pendingResults = new PendingResults();
      const inside = new Set<number>();
      let last = 0;
      for (const each of steps) {
        if (each === "result" || each === "released") {
          last += 1;
          inside.add(last);
          pendingResults.add(each === "result" ? ended(last) : released(last), "owner", queued);
        } else if (each === "requeue") {
          pendingResults.requeueDeferred();
          assert.equal(pendingResults.deferredCount, 0);
        } else {
          const [results, releases] = [pendingResults.takeResults(), pendingResults.takeReleased()];
          const taken = ids([...results, ...releases]);
          for (const id of taken) assert.ok(inside.has(id) && !pendingResults.has({ id: String(id), owner: "owner" }));
          assert.ok(pendingResults.isEmpty);
          if (each === "write") for (const id of taken) inside.delete(id);
          else if (each === "fail") {
            pendingResults.requeue(results);
            pendingResults.released.requeue(releases);
          } else {
            pendingResults.defer(results);
            pendingResults.released.defer(releases);
          }
        }
        assert.equal(pendingResults.size, inside.size);
        for (const id of inside) assert.ok(pendingResults.has({ id: String(id), owner: "owner" }));
      }
    }),
  );
});

test("results are taken in the order in which they were added, requeued ones first", () => {
  const pendingResults = new PendingResults();
  for (const id of [1, 2, 3]) pendingResults.add(ended(id), "owner", queued);
  const results = pendingResults.takeResults();
  pendingResults.add(ended(4), "owner", queued);
  pendingResults.requeue(results);
  assert.deepEqual(ids(pendingResults.takeResults()), [1, 2, 3, 4]);
});

test("puts rejected and postponed results last, and those of locked rows first", () => {
  const pendingResults = new PendingResults();
  for (const id of [1, 2, 3, 4]) pendingResults.add(ended(id), "owner", queued);
  const [rejected, transient, locked, late] = pendingResults.takeResults();
  assert.ok(rejected && transient && locked && late);
  pendingResults.add(ended(5), "owner", queued);
  pendingResults.defer([rejected], 1, true);
  pendingResults.defer([transient], 1);
  pendingResults.defer([locked]);
  pendingResults.requeueLast([late]);
  assert.deepEqual([pendingResults.deferredCount, pendingResults.rejectedCount, pendingResults.size], [2, 1, 5]);
  pendingResults.requeueDeferred();
  assert.deepEqual(ids(pendingResults.takeResults()), [3, 5, 4, 1, 2]);
});

test("names the owners of unwritten results, except for rejected ones", () => {
  const pendingResults = new PendingResults();
  for (const id of [1, 2, 3, 4]) pendingResults.add(ended(id), `owner ${id}`, queued);
  pendingResults.add(released(5), "owner 5", queued);
  const [rejected, locked, late] = pendingResults.takeResults();
  assert.ok(rejected && locked && late);
  pendingResults.defer([rejected], 1, true);
  pendingResults.defer([locked]);
  pendingResults.requeueLast([late]);
  pendingResults.add({ ...ended(6), largeOutput: new Uint8Array(1) }, "owner 6", queued);
  pendingResults.add({ ...ended(7), largeOutput: new Uint8Array(1) }, "owner 7", queued);
  pendingResults.takeLarge();
  const owners = [...pendingResults.unwrittenOwners].toSorted();
  assert.deepEqual(owners, ["owner 2", "owner 3", "owner 6", "owner 7"]);
});

test("limits the text of one statement, but takes a single result of any size", () => {
  const pendingResults = new PendingResults();
  const big = "x".repeat(5 * mebi);
  for (const [id, output] of [
    [1, big],
    [2, "y"],
    [3, big],
    [4, big + big],
    [5, null],
  ] as const) {
    pendingResults.add(ended(id, output), "owner", queued);
  }
  const statements: number[][] = [];
  while (!pendingResults.isEmpty) statements.push(ids(pendingResults.takeResults()));
  assert.deepEqual(statements, [[1, 2], [3], [4], [5]]);
});

test("takes at most a thousand results for one statement", () => {
  const pendingResults = new PendingResults();
  for (let id = 1; id <= 1500; id += 1) pendingResults.add(ended(id), "owner", queued);
  for (let id = 2001; id <= 3500; id += 1) pendingResults.add(released(id), "owner", queued);
  assert.deepEqual([pendingResults.takeResults().length, pendingResults.takeResults().length], [1000, 500]);
  assert.deepEqual([pendingResults.takeReleased().length, pendingResults.takeReleased().length], [1000, 500]);
  assert.ok(pendingResults.isEmpty);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import type { RunResult } from "../../../../src/shared/ipc/messages.js";

const mebi = 1024 * 1024;

function ended(id: number, output: string | null = null): Extract<RunResult, { outcome: "ended" }> {
  const fixed = { session: 1, id: String(id), start: "", stop: "", error: null, committed: false };
  return { outcome: "ended", ...fixed, output };
}

const returned = (id: number): RunResult => ({ outcome: "returned", session: 1, id: String(id) });

const ids = (list: readonly { id: string }[]): number[] => list.map(({ id }) => Number(id));

test("what is taken out fails, is held or put back, and nothing is lost or doubled", () => {
  const step = fc.constantFrom("result", "return", "write", "fail", "hold", "release");
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const outbox = new PendingResults();
      const inside = new Set<number>();
      let last = 0;
      for (const each of steps) {
        if (each === "result" || each === "return") {
          last += 1;
          inside.add(last);
          outbox.add(each === "result" ? ended(last) : returned(last), "owner");
        } else if (each === "release") {
          outbox.release();
          assert.equal(outbox.held, 0);
        } else {
          const [results, returns] = [outbox.takeResults(), outbox.takeReturns()];
          const taken = ids([...results, ...returns]);
          for (const id of taken) assert.ok(inside.has(id) && !outbox.has(String(id)));
          assert.ok(outbox.empty);
          if (each === "write") for (const id of taken) inside.delete(id);
          else if (each === "fail") outbox.putBack(results, returns);
          else outbox.hold(results, returns);
        }
        assert.equal(outbox.size, inside.size);
        for (const id of inside) assert.ok(outbox.has(String(id)));
      }
    }),
  );
});

test("results leave in the order in which they came, put back ones first", () => {
  const outbox = new PendingResults();
  for (const id of [1, 2, 3]) outbox.add(ended(id), "owner");
  const results = outbox.takeResults();
  outbox.add(ended(4), "owner");
  outbox.putBack(results, []);
  assert.deepEqual(ids(outbox.takeResults()), [1, 2, 3, 4]);
});

test("what was refused or there was no time for comes last, what was only locked first", () => {
  const outbox = new PendingResults();
  for (const id of [1, 2, 3, 4]) outbox.add(ended(id), "owner");
  const [refused, passing, locked, late] = outbox.takeResults();
  assert.ok(refused && passing && locked && late);
  outbox.add(ended(5), "owner");
  outbox.hold([refused], [], 1, true);
  outbox.hold([passing], [], 1);
  outbox.hold([locked], []);
  outbox.putBehind([late], []);
  assert.deepEqual([outbox.held, outbox.refused, outbox.size], [2, 1, 5]);
  outbox.release();
  assert.deepEqual(ids(outbox.takeResults()), [3, 5, 4, 1, 2]);
});

test("it tells whose results are not written, wherever they wait, but not of refused ones", () => {
  const outbox = new PendingResults();
  for (const id of [1, 2, 3, 4]) outbox.add(ended(id), `owner ${id}`);
  outbox.add(returned(5), "owner 5");
  const [refused, locked, late] = outbox.takeResults();
  assert.ok(refused && locked && late);
  outbox.hold([refused], [], 1, true);
  outbox.hold([locked], []);
  outbox.putBehind([late], []);
  outbox.add({ ...ended(6), large: new Uint8Array(1) }, "owner 6");
  outbox.add({ ...ended(7), large: new Uint8Array(1) }, "owner 7");
  outbox.takeLarge();
  const owners = [...outbox.owners].toSorted();
  assert.deepEqual(owners, ["owner 2", "owner 3", "owner 6", "owner 7"]);
});

test("one statement carries no more text than is good, but a single result of any size", () => {
  const outbox = new PendingResults();
  const big = "x".repeat(5 * mebi);
  for (const [id, output] of [
    [1, big],
    [2, "y"],
    [3, big],
    [4, big + big],
    [5, null],
  ] as const) {
    outbox.add(ended(id, output), "owner");
  }
  const statements: number[][] = [];
  while (!outbox.empty) statements.push(ids(outbox.takeResults()));
  assert.deepEqual(statements, [[1, 2], [3], [4], [5]]);
});

test("one statement carries no more than a thousand results", () => {
  const outbox = new PendingResults();
  for (let id = 1; id <= 1500; id += 1) outbox.add(ended(id), "owner");
  for (let id = 2001; id <= 3500; id += 1) outbox.add(returned(id), "owner");
  assert.deepEqual([outbox.takeResults().length, outbox.takeResults().length], [1000, 500]);
  assert.deepEqual([outbox.takeReturns().length, outbox.takeReturns().length], [1000, 500]);
  assert.ok(outbox.empty);
});

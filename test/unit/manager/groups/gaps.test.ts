import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { Gaps } from "../../../../src/manager/groups/gaps.js";

/** Groups with a clock that the test sets. Groups may have had starts until time 0. */
function createGroups() {
  const clock = { ms: 0 };
  return { clock, groups: new ActiveGroups(() => clock.ms) };
}

const head = { max: 0, id: 1n };

test("a head with a gap can start when the gap has passed, and the end of the gap is known", () => {
  const { clock, groups } = createGroups();
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  groups.setHead(2, { ...head, gapMs: 30 }, false);
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs, groups.gaps.hasWaits], [0, 30, true]);
  clock.ms = 30;
  assert.equal(groups.gaps.nextMs, 0);
  groups.endGaps();
  assert.deepEqual([groups.canStart(1), groups.canStart(2), groups.gaps.nextMs], [false, true, 70]);
  clock.ms = 100;
  groups.endGaps();
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs, groups.gaps.hasWaits], [2, Infinity, false]);
});

test("each start makes the head wait for its whole gap", () => {
  const { clock, groups } = createGroups();
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  clock.ms = 90;
  groups.noteStart(1);
  clock.ms = 100;
  groups.endGaps();
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs], [0, 90]);
});

test("another head that may start does not wait, and no longer keeps the gap of the old one", () => {
  const { groups } = createGroups();
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  groups.addDue(1, { max: 1, id: 2n });
  assert.deepEqual([groups.canStart(1), groups.gaps.hasWaits], [true, false]);
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  groups.setHead(1, null, false);
  assert.deepEqual([groups.startable.size, groups.gaps.hasWaits, groups.get(1)], [0, false, null]);
});

test("until a start is reported, and while tasks are queued, no end of the gap is known", () => {
  const { clock, groups } = createGroups();
  groups.addSession(1);
  groups.addStarting(1);
  groups.setHead(1, { max: 9, id: 1n, gapMs: 10 }, false);
  clock.ms = 1_000;
  groups.endGaps();
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs, groups.hasStarting], [0, Infinity, true]);
  groups.noteStart(1);
  groups.removeStarting(1);
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs, groups.hasStarting], [0, 10, false]);
  groups.enqueue(1, 9);
  clock.ms = 1_010;
  groups.endGaps();
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs], [0, Infinity]);
  groups.dequeue(1);
  assert.equal(groups.startable.size, 1);
});

test("a group that is no longer active keeps its last start, and a new manager assumes one for every group", () => {
  const { clock, groups } = createGroups();
  clock.ms = 1_000;
  groups.addSession(1);
  groups.noteStart(1);
  groups.removeSession(1);
  assert.equal(groups.get(1), null);
  clock.ms = 1_050;
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  groups.setHead(2, { ...head, gapMs: 100 }, false);
  assert.deepEqual([groups.canStart(1), groups.canStart(2), groups.gaps.nextMs], [false, true, 50]);
  groups.forgetStarts();
  assert.deepEqual([groups.startable.size, groups.gaps.nextMs], [0, 100]);
});

test("a gap counts from the last start that the manager before this one knew of", () => {
  const { clock, groups } = createGroups();
  clock.ms = 1_000;
  groups.forgetStarts(70);
  groups.setHead(1, { ...head, gapMs: 100 }, false);
  groups.setHead(2, { ...head, gapMs: 70 }, false);
  assert.deepEqual([groups.canStart(1), groups.canStart(2), groups.gaps.nextMs], [false, true, 30]);
  assert.equal(groups.gaps.allQuietMs, 70);
  clock.ms = 1_010;
  groups.noteStart(2);
  assert.equal(groups.gaps.allQuietMs, 0);
});

test("counting the groups anew corrects the number of starts that are not reported yet", () => {
  const { clock, groups } = createGroups();
  groups.addSession(1);
  groups.addStarting(1);
  groups.recount({ busy: 0, groups: new Map(), orphans: [], keys: [], current: [] });
  groups.setHead(1, { ...head, gapMs: 10 }, false);
  clock.ms = 10;
  groups.endGaps();
  assert.deepEqual([groups.startable.size, groups.hasStarting], [1, false]);
});

test("a remembered start is never earlier than the real one, and few are remembered", () => {
  const hash = fc.integer({ min: 0, max: 9 });
  fc.assert(
    fc.property(fc.array(hash, { maxLength: 60 }), (hashes) => {
      const remembered = new Gaps(() => 0, 3);
      const real = new Map<number, number>();
      for (const [index, each] of hashes.entries()) {
        const assumed = remembered.take(each);
        assert.ok(assumed >= (real.get(each) ?? 0) && assumed <= index);
        const recent = new Set(hashes.slice(Math.max(0, index - 2), index));
        if (recent.has(each)) assert.equal(assumed, real.get(each));
        real.set(each, index + 1);
        remembered.remember(each, index + 1);
      }
    }),
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";

const hash = fc.integer({ min: -3, max: 3 });

test("the running tasks of a group are those that have started and not ended", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ hash, ends: fc.boolean() }), { maxLength: 60 }), (steps) => {
      const groups = new ActiveGroups();
      const running: number[] = [];
      for (const step of steps) {
        const place = running.indexOf(step.hash);
        if (!step.ends) {
          running.push(step.hash);
          groups.addOrphan(step.hash);
        } else if (place >= 0) {
          running.splice(place, 1);
          groups.removeOrphan(step.hash);
        }
        assert.equal(groups.totalRunning, running.length);
        for (let each = -3; each <= 3; each += 1) {
          const count = running.filter((one) => one === each).length;
          assert.equal(groups.get(each)?.running ?? 0, count);
        }
      }
    }),
  );
});

test("no task of a withheld group may start until the group is allowed again", () => {
  const groups = new ActiveGroups();
  groups.addDue(1, { max: 0, id: 1n });
  groups.withhold(1);
  groups.withhold(2);
  groups.addDue(2, { max: 0, id: 2n });
  groups.addDue(3, { max: 0, id: 3n });
  assert.deepEqual([groups.startable.size, groups.ranking.takeBest()?.hash, groups.ranking.takeBest()], [1, 3, null]);
  assert.equal(groups.take(1), null);
  groups.allow(1);
  assert.deepEqual([groups.hasWithheld, groups.canStart(1), groups.canStart(2)], [true, true, false]);
  groups.allow(2);
  assert.deepEqual(
    [groups.hasWithheld, groups.ranking.takeBest()?.hash, groups.ranking.takeBest()?.hash],
    [false, 1, 2],
  );
});

interface Known {
  max: number;
  id: bigint;
  running: number;
  waiting: number[];
  paused: boolean;
}

const step = fc.oneof(
  fc.record({ does: fc.constant("join" as const), hash }),
  fc.record({ does: fc.constant("leave" as const), hash }),
  fc.record({ does: fc.constant("wait" as const), hash, max: fc.nat({ max: 3 }) }),
  fc.record({ does: fc.constant("stir" as const), hash }),
  fc.record({
    does: fc.constantFrom("offer" as const, "see" as const),
    hash,
    max: fc.nat({ max: 4 }),
    id: fc.bigInt({ min: 1n, max: 9n }),
    paused: fc.boolean(),
  }),
);

test("whatever happens, the next group is the one that the rule requires", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const groups = new ActiveGroups();
      const known = new Map<number, Known>();
      const at = (of: number): Known => {
        const one = known.get(of) ?? { max: -1, id: 0n, running: 0, waiting: [], paused: false };
        known.set(of, one);
        return one;
      };
      for (const each of steps) {
        const one = at(each.hash);
        if (each.does === "join") {
          one.running += 1;
          groups.addSession(each.hash);
        } else if (each.does === "leave") {
          if (one.running === 0) continue;
          one.running -= 1;
          groups.removeSession(each.hash);
        } else if (each.does === "wait") {
          one.waiting.push(each.max);
          groups.enqueue(each.hash, each.max);
        } else if (each.does === "stir") {
          if (one.waiting.length === 0) continue;
          // The smallest `max` stays the limit until no task waits, so the model removes the largest one.
          one.waiting.splice(one.waiting.indexOf(Math.max(...one.waiting)), 1);
          groups.dequeue(each.hash);
        } else if (each.does === "see") {
          Object.assign(one, { max: each.max, id: each.id, paused: each.paused });
          groups.setHead(each.hash, { max: each.max, id: each.id }, each.paused);
        } else {
          if (each.max > one.max || (each.max === one.max && each.id < one.id))
            Object.assign(one, { max: each.max, id: each.id });
          groups.addDue(each.hash, { max: each.max, id: each.id });
        }
      }
      const expected = [...known]
        .filter(
          ([, { max, running, waiting, paused }]) =>
            max >= running && !paused && Math.min(Infinity, ...waiting) >= running,
        )
        .toSorted(([, a], [, b]) => b.max - b.running - (a.max - a.running) || Number(a.id - b.id))
        .map(([, { max, running, id }]) => [max - running, id]);
      const taken = [];
      for (let next = groups.ranking.takeBest(); next !== null; next = groups.ranking.takeBest()) {
        taken.push([(next.head?.max ?? -1) - next.running, next.head?.id]);
      }
      assert.deepEqual(taken, expected);
    }),
    { numRuns: 500 },
  );
});

test("a group that was taken comes back when it is released", () => {
  const groups = new ActiveGroups();
  groups.addDue(1, { max: 0, id: 7n });
  const group = groups.ranking.takeBest();
  assert.equal(groups.ranking.takeBest(), null);
  assert.ok(group !== null);
  groups.putBack(group);
  assert.equal(groups.ranking.takeBest(), group);
});

test("a group with no running and no due task is forgotten", () => {
  const groups = new ActiveGroups();
  groups.addSession(1);
  groups.setHead(1, { max: 0, id: 7n }, false);
  groups.removeSession(1);
  assert.notEqual(groups.get(1), null);
  groups.setHead(1, null, false);
  assert.equal(groups.get(1), null);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";

const hash = fc.integer({ min: -3, max: 3 });

test("what runs of each group is what began and has not ended", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ hash, ends: fc.boolean() }), { maxLength: 60 }), (steps) => {
      const groups = new ActiveGroups();
      const running: number[] = [];
      for (const step of steps) {
        const place = running.indexOf(step.hash);
        if (!step.ends) {
          running.push(step.hash);
          groups.begin(step.hash);
        } else if (place >= 0) {
          running.splice(place, 1);
          groups.end(step.hash);
        }
        assert.equal(groups.total, running.length);
        for (let each = -3; each <= 3; each += 1) {
          const count = running.filter((one) => one === each).length;
          assert.equal(groups.get(each)?.running ?? 0, count);
        }
      }
    }),
  );
});

test("nothing of a group that is withheld may start, until it is allowed again", () => {
  const groups = new ActiveGroups();
  groups.offer(1, { max: 0, id: 1n });
  groups.withhold(1);
  groups.withhold(2);
  groups.offer(2, { max: 0, id: 2n });
  groups.offer(3, { max: 0, id: 3n });
  assert.deepEqual([groups.startable, groups.next()?.hash, groups.next()], [1, 3, null]);
  assert.equal(groups.choose(1), null);
  groups.allow(1);
  assert.deepEqual([groups.withholds, groups.mayStart(1), groups.mayStart(2)], [true, true, false]);
  groups.allow(2);
  assert.deepEqual([groups.withholds, groups.next()?.hash, groups.next()?.hash], [false, 1, 2]);
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

test("whatever happens, the next group is the one that the rule says", () => {
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
          groups.join(each.hash);
        } else if (each.does === "leave") {
          if (one.running === 0) continue;
          one.running -= 1;
          groups.leave(each.hash);
        } else if (each.does === "wait") {
          one.waiting.push(each.max);
          groups.wait(each.hash, each.max);
        } else if (each.does === "stir") {
          if (one.waiting.length === 0) continue;
          // The least of them counts until none waits any more.
          one.waiting.splice(one.waiting.indexOf(Math.max(...one.waiting)), 1);
          groups.stir(each.hash);
        } else if (each.does === "see") {
          Object.assign(one, { max: each.max, id: each.id, paused: each.paused });
          groups.see(each.hash, { max: each.max, id: each.id }, each.paused);
        } else {
          if (each.max > one.max || (each.max === one.max && each.id < one.id))
            Object.assign(one, { max: each.max, id: each.id });
          groups.offer(each.hash, { max: each.max, id: each.id });
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
      for (let next = groups.next(); next !== null; next = groups.next()) {
        taken.push([(next.head?.max ?? -1) - next.running, next.head?.id]);
      }
      assert.deepEqual(taken, expected);
    }),
    { numRuns: 500 },
  );
});

test("a group that was taken comes back when it is released", () => {
  const groups = new ActiveGroups();
  groups.offer(1, { max: 0, id: 7n });
  const group = groups.next();
  assert.equal(groups.next(), null);
  assert.ok(group !== null);
  groups.release(group);
  assert.equal(groups.next(), group);
});

test("a group of which nothing runs and nothing is due is forgotten", () => {
  const groups = new ActiveGroups();
  groups.join(1);
  groups.see(1, { max: 0, id: 7n }, false);
  groups.leave(1);
  assert.notEqual(groups.get(1), null);
  groups.see(1, null, false);
  assert.equal(groups.get(1), null);
});

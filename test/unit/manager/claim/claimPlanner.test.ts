import assert from "node:assert/strict";
import { test } from "node:test";
import { ClaimPlanner } from "../../../../src/manager/claim/claimPlanner.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import type { OfferedSession, QueueableSession } from "../../../../src/manager/model.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";

const hash = 1;
/** A group whose tasks come after those of the first one. */
const otherHash = 2;
const limits = { maxTasks: 100, maxStarts: 2, lookAhead: 0, minGroups: 0 };

/** Makes a planner for a group with many due tasks, whose runs have been short, and for these sessions. */
function makePlanner(sessions: {
  readonly free: readonly OfferedSession[];
  readonly busy: readonly QueueableSession[];
}) {
  const groups = new ActiveGroups();
  groups.addDue(hash, { max: 100, id: 1n });
  const group = groups.get(hash);
  assert.ok(group !== null);
  const runTimes = new RunTimes();
  for (let run = 0; run < 100; run += 1) runTimes.add(hash, 1);
  const planner = new ClaimPlanner({
    sessions: {
      offer: (most) => sessions.free.slice(0, most),
      withdrawOffers: () => {},
      queueable: () => sessions.busy.map((session) => ({ ...session })),
    },
    groups,
    runTimes,
  });
  const plan = () => {
    const result = planner.plan(limits);
    for (const planned of result?.planned ?? []) groups.putBack(planned.group);
    return result;
  };
  return { plan, group, groups };
}

const free = [1, 2].map((number) => ({ number, owner: `session ${number}`, pid: number, dedication: null }));
const busy = [3, 4].map((number) => ({
  number,
  owner: `session ${number}`,
  pid: number,
  expectedMs: 1,
  groups: [hash],
}));

test("a claim for free sessions also queues short tasks behind the first ones, unless they are expected to be exclusive", () => {
  const { plan, group } = makePlanner({ free, busy: [] });
  assert.ok((plan()?.slots.length ?? 0) > free.length);
  group.expectsExclusive = true;
  assert.deepEqual(
    plan()?.slots.map(({ owner, startsNow }) => ({ owner, startsNow })),
    free.map(({ owner }) => ({ owner, startsNow: true })),
  );
});

test("nothing is claimed for busy sessions if only tasks that are expected to be exclusive are due", () => {
  const { plan, group } = makePlanner({ free: [], busy });
  assert.equal(plan()?.groups.length, 1);
  group.expectsExclusive = true;
  assert.equal(plan(), null);
});

test("a busy session is reserved for a group whose next task is expected to be exclusive", () => {
  for (const sessions of [busy, busy.slice(0, 1)]) {
    const { plan, group, groups } = makePlanner({ free: [], busy: sessions });
    groups.addDue(otherHash, { max: 50, id: 2n });
    group.expectsExclusive = true;
    const { groups: planned = [], slots = [] } = plan() ?? {};
    const others = sessions.length - 1;
    assert.deepEqual(
      planned.map((each) => each.hash),
      others > 0 ? [otherHash] : [],
    );
    assert.equal(new Set(slots.map(({ owner }) => owner)).size, others);
  }
});

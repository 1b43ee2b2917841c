import assert from "node:assert/strict";
import { test } from "node:test";
import { ClaimPlanner } from "../../../../src/manager/claim/claimPlanner.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import type { OfferedSession, QueueableSession } from "../../../../src/manager/model/tasks.js";
import { unreservedStarts } from "../../../support/claims.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";

const hash = 1;
/** A group whose tasks come after those of the first one. */
const otherHash = 2;
const limits = { maxTasks: 100, starts: unreservedStarts(2), lookAhead: 0, minGroups: 0 };

/** Makes a planner for a group with many due tasks, whose runs have been short, and for these sessions. */
function makePlanner(sessions: {
  readonly free: readonly OfferedSession[];
  readonly busy: readonly QueueableSession[];
}) {
  let now = 0;
  const groups = new ActiveGroups(() => now);
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
  /** Makes a group with one due task, whose runs have taken this long, in ms. */
  const addGroup = (added: number, max: number, ms: number) => {
    groups.addDue(added, { max, id: BigInt(added) });
    for (let run = 0; run < 100; run += 1) runTimes.add(added, ms);
    const made = groups.get(added);
    assert.ok(made !== null);
    return made;
  };
  const plan = () => {
    const result = planner.plan(limits);
    for (const planned of result?.planned ?? []) groups.putBack(planned.group);
    return result;
  };
  const passTime = (ms: number) => {
    now += ms;
    groups.endGaps();
  };
  return { plan, planner, addGroup, passTime, group, groups };
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

/** Returns the hashes of the groups of a plan, those with slots of their own marked with `own`. */
const planned = (plan: ReturnType<ReturnType<typeof makePlanner>["plan"]>): string[] =>
  (plan?.groups ?? []).map((each) => `${each.ownSlots === null ? "" : "own "}${each.hash}`).toSorted();

test("a claim for free sessions also queues short tasks of other groups, behind the first ones and in busy sessions", () => {
  const { plan, addGroup } = makePlanner({ free, busy });
  for (const other of [2, 3, 4, 5]) addGroup(other, 50, 1);
  const result = plan();
  assert.deepEqual(planned(result), ["1", "2", "3", "4", "5"]);
  assert.deepEqual(
    result?.slots.map(({ owner, startsNow }) => `${owner} ${startsNow}`),
    ["session 1 true", "session 2 true", "session 3 false", "session 4 false", "session 1 false"],
  );
  assert.equal(result?.fillsQueues, true);
});

test("such a claim also fills the queues behind tasks of the same group", () => {
  const { plan, addGroup, groups } = makePlanner({ free, busy });
  // One task of the first group is running, and no other one may run at the same time.
  groups.addSession(hash);
  groups.setHead(hash, { max: 0, id: 1n }, false);
  addGroup(2, 0, 1);
  addGroup(3, 0, 1);
  assert.deepEqual(planned(plan()), ["2", "3", "own 1"]);
});

test("nothing is queued by a claim for free sessions if one of their tasks is long, exclusive or has a gap, or if a session is reserved", () => {
  const { plan, planner, addGroup, passTime, groups } = makePlanner({ free, busy });
  const other = addGroup(2, 90, 1);
  addGroup(3, 50, 1);
  assert.equal(plan()?.slots.length, 3);
  other.expectsExclusive = true;
  const starts = { slots: 2, fillsQueues: false };
  const seen = () => {
    const result = plan();
    return { slots: result?.slots.length, fillsQueues: result?.fillsQueues };
  };
  assert.deepEqual(seen(), starts);
  other.expectsExclusive = false;
  groups.setHead(2, { max: 90, id: 2n, gapMs: 10 }, false);
  passTime(20);
  assert.ok(groups.canStart(2));
  assert.deepEqual(seen(), starts);
  groups.setHead(2, { max: 90, id: 2n }, false);
  planner.reservedSessions = 1;
  assert.deepEqual(seen(), starts);
  planner.reservedSessions = 0;
  addGroup(4, 99, 100);
  assert.deepEqual(seen(), starts);
});

test("a long task of a further group is not queued, and the least busy session is reserved for it", () => {
  const { plan, addGroup } = makePlanner({ free, busy });
  for (const short of [2, 4]) addGroup(short, 60, 1);
  addGroup(3, 50, 100);
  const result = plan();
  assert.deepEqual(planned(result), ["1", "2", "4"]);
  assert.equal(result?.slots.length, 3);
});

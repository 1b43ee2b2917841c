import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { shareOf } from "../../../../src/shared/shareOf.js";

const weights = { a: 1, b: 2, c: 0.5 };
const names = ["a", "b", "c", "d"];
const groupsPerShare = 3;

const nameOf = (hash: number): string => names[Math.floor(hash / groupsPerShare)] ?? "";
const taskOf = (hash: number) => ({ hash, group: `${nameOf(hash)}/${hash}` });

function makeGroups(given: Readonly<Record<string, number>> = weights): ActiveGroups {
  const groups = new ActiveGroups(() => 0);
  groups.divide({ setting: "/", weights: given }, []);
  return groups;
}

/** What `placeGroups` does after it has read the rows. */
function place(groups: ActiveGroups): void {
  for (const group of groups.ranking.takeUnknown())
    groups.ranking.place(group, null, groups.shares?.nameOf(taskOf(group.hash)));
}

function start(groups: ActiveGroups, hash: number): void {
  groups.shares?.started(taskOf(hash));
  groups.addSession(hash);
}

function end(groups: ActiveGroups, hash: number, ms: number): void {
  groups.shares?.ended(taskOf(hash), ms);
  groups.removeSession(hash);
}

interface Known {
  readonly hash: number;
  max: number;
  id: number;
  running: number;
}

/** The rule in its simplest form. */
class Model {
  readonly groups = new Map<number, Known>();
  readonly #used = new Map<string, number>();
  #clock = 0;
  #waiting = new Set<string>();

  running(name: string): number {
    return [...this.groups.values()].reduce((sum, { hash, running }) => sum + (nameOf(hash) === name ? running : 0), 0);
  }

  used(name: string): number {
    return this.#used.get(name) ?? this.#clock;
  }

  started(name: string): void {
    this.#clock = Math.max(this.#clock, this.used(name));
    this.#used.set(name, this.used(name));
  }

  ended(name: string, ms: number): void {
    this.#used.set(name, this.used(name) + ms / weightOf(name));
  }

  /** A share that had nothing to start comes back no earlier than the others. */
  resume(): void {
    const waiting = new Set<string>();
    for (const { hash, max, running } of this.groups.values()) if (max >= running) waiting.add(nameOf(hash));
    for (const name of waiting)
      if (!this.#waiting.has(name)) this.#used.set(name, Math.max(this.used(name), this.#clock));
    this.#waiting = waiting;
  }

  choose(sessions: number): Map<number, number> {
    const given = new Map<number, number>();
    const of = (hash: number): number => given.get(hash) ?? 0;
    const load = (name: string): number =>
      (this.running(name) + [...given].reduce((sum, [hash, count]) => sum + (nameOf(hash) === name ? count : 0), 0)) /
      weightOf(name);
    for (let each = 0; each < sessions; each += 1) {
      const [best] = [...this.groups.values()]
        .filter(({ hash, max, running }) => max >= running + of(hash))
        .toSorted(
          (a, b) =>
            load(nameOf(a.hash)) - load(nameOf(b.hash)) ||
            this.used(nameOf(a.hash)) - this.used(nameOf(b.hash)) ||
            b.max - b.running - of(b.hash) - (a.max - a.running - of(a.hash)) ||
            a.id - b.id,
        );
      if (best === undefined) break;
      given.set(best.hash, of(best.hash) + 1);
    }
    return given;
  }
}

const weightOf = (name: string): number => new Map(Object.entries(weights)).get(name) ?? 1;

const hash = fc.nat({ max: names.length * groupsPerShare - 1 });
const step = fc.oneof(
  fc.record({ does: fc.constant("insert" as const), hash, max: fc.nat({ max: 5 }) }),
  fc.record({ does: fc.constant("start" as const), hash }),
  fc.record({ does: fc.constant("end" as const), hash, ms: fc.nat({ max: 9 }) }),
  fc.record({ does: fc.constant("choose" as const), sessions: fc.integer({ min: 1, max: 12 }) }),
  fc.record({ does: fc.constant("recount" as const) }),
);

test("whatever happens, the next sessions go to the groups that the rule requires", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const groups = makeGroups();
      const model = new Model();
      for (const [index, each] of steps.entries()) {
        const known = "hash" in each ? model.groups.get(each.hash) : undefined;
        if (each.does === "insert" && known === undefined) {
          groups.addDue(each.hash, { max: each.max, id: BigInt(index) });
          model.groups.set(each.hash, { hash: each.hash, max: each.max, id: index, running: 0 });
        } else if (each.does === "start" && known !== undefined) {
          start(groups, each.hash);
          model.started(nameOf(each.hash));
          known.running += 1;
        } else if (each.does === "end" && known !== undefined && known.running > 0) {
          end(groups, each.hash, each.ms);
          model.ended(nameOf(each.hash), each.ms);
          known.running -= 1;
        } else if (each.does === "choose") {
          const taken = groups.ranking.takeForSessions(each.sessions);
          const given = new Map(taken.map((group) => [group.hash, group.granted]));
          for (const group of taken) groups.putBack(group);
          assert.deepEqual(given, model.choose(each.sessions));
        }
        place(groups);
        model.resume();
        for (const name of names) assert.equal(groups.shares?.runningByName[name] ?? 0, model.running(name));
      }
    }),
    { numRuns: 500 },
  );
});

/** Lets users with endless tasks of these lengths, in ms, share sessions. Returns how much of the time each one had. */
function simulate(users: Readonly<Record<string, number>>, given: Readonly<Record<string, number>>, sessions: number) {
  const groups = makeGroups(given);
  const runs: { readonly hash: number; readonly from: number; readonly until: number }[] = [];
  const had = new Map<string, number>();
  for (const [index, name] of names.entries())
    if (name in users) groups.addDue(index * groupsPerShare, { max: 1000, id: BigInt(index) });
  place(groups);
  for (let now = 0; now < 60_000;) {
    const taken = groups.ranking.takeForSessions(sessions - runs.length);
    for (const group of taken) {
      const { granted, hash: of } = group;
      groups.putBack(group);
      for (let each = 0; each < granted; each += 1) {
        start(groups, of);
        runs.push({ hash: of, from: now, until: now + (users[nameOf(of)] ?? 0) * (0.8 + 0.4 * Math.random()) });
      }
    }
    runs.sort((a, b) => b.until - a.until);
    const next = runs.pop();
    assert.ok(next !== undefined);
    now = next.until;
    end(groups, next.hash, next.until - next.from);
    had.set(nameOf(next.hash), (had.get(nameOf(next.hash)) ?? 0) + next.until - next.from);
  }
  const total = [...had.values()].reduce((sum, one) => sum + one, 0);
  return Object.fromEntries([...had].map(([name, ms]) => [name, ms / total]));
}

test("users get sessions by their weights, however long their tasks are", () => {
  for (const sessions of [14, 16, 62, 64])
    for (const users of [
      { a: 100, b: 100, c: 100 },
      { a: 20, b: 100, c: 300 },
    ]) {
      const had = simulate(users, { b: 2, c: 4 }, sessions);
      for (const [name, weight] of [
        ["a", 1],
        ["b", 2],
        ["c", 4],
      ] as const) {
        const ratio = (had[name] ?? 0) / (weight / 7);
        assert.ok(ratio > 0.9 && ratio < 1.1, `${name} had ${ratio} of its share of ${sessions} sessions`);
      }
    }
});

test("with fewer sessions than users, they take turns by the time that they have used", () => {
  const had = simulate({ a: 10, b: 100, c: 500, d: 20 }, {}, 2);
  for (const name of names) assert.ok(Math.abs((had[name] ?? 0) - 0.25) < 0.025, `${name} had ${had[name]}`);
});

test("who comes back often, with one long task each time, does not get ahead of who waits", () => {
  const groups = makeGroups();
  groups.addDue(0, { max: 1000, id: 1n });
  place(groups);
  const next = (): number | undefined => {
    const [group] = groups.ranking.takeForSessions(1);
    if (group !== undefined) groups.putBack(group);
    return group?.hash;
  };
  const started: string[] = [];
  for (let each = 0; each < 40; each += 1) {
    groups.addDue(groupsPerShare * 3, { max: 0, id: BigInt(each + 2) });
    place(groups);
    const of = next() ?? 0;
    started.push(nameOf(of));
    if (of !== 0) groups.setHead(of, null, false);
    start(groups, of);
    end(groups, of, of === 0 ? 1 : 10);
  }
  const waiting = started.filter((name) => name === "a").length;
  assert.ok(waiting > 30, `${waiting} of 40`);
});

test("a share that runs nothing can get a reserved session, for one task", () => {
  const groups = makeGroups();
  for (const of of [0, 1, 3]) groups.addDue(of, { max: 0, id: BigInt(of) });
  place(groups);
  assert.equal(groups.startable.idle, 2);
  const [one, two, none] = [
    groups.ranking.takeBestIdle(),
    groups.ranking.takeBestIdle(),
    groups.ranking.takeBestIdle(),
  ];
  assert.deepEqual([one?.hash, two?.hash, none], [0, 3, null]);
  for (const group of [one, two]) if (group !== null && group !== undefined) groups.putBack(group);
  assert.equal(groups.runsAnything(1, 0), false);
  start(groups, 0);
  assert.deepEqual([groups.startable.idle, groups.runsAnything(1, 0), groups.runsAnything(3, 0)], [1, true, false]);
});

test("another rule counts what runs", () => {
  const groups = makeGroups();
  groups.addDue(0, { max: 5, id: 1n });
  place(groups);
  start(groups, 0);
  groups.divide({ setting: "-", weights: {} }, [{ group: "alice-0" }]);
  assert.deepEqual(groups.shares?.runningByName, { alice: 1 });
  groups.divide(null, []);
  assert.equal(groups.ranking.takeBest()?.hash, 0);
});

test("the share is the part of the group before the separator", () => {
  assert.equal(shareOf("/", "a/b/c"), "a");
  assert.equal(shareOf("::", "a:b::c"), "a:b");
  assert.equal(shareOf("/", "a"), "a");
  assert.equal(shareOf("/", "/a"), "");
  assert.equal(shareOf("", "a"), null);
});

import { precedes, type ActiveGroup, type ActiveGroups, type Head } from "../groups/groups.js";
import { QueueCapacity } from "./queueCapacity.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { OfferedSession } from "../sessions/session.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { ClaimedGroup, ClaimRequest, QueueSlot } from "./claimFull.sql.js";

/** Before every task of a group. */
const top: Head = { max: 2_147_483_647, id: -(2n ** 63n) };

/** A claim that is to be sent, and what it is made from. */
export interface ClaimPlan extends Omit<ClaimRequest, "except" | "traced"> {
  readonly offered: readonly OfferedSession[];
  readonly chosen: readonly {
    readonly group: ActiveGroup;
    readonly head: Head | null;
    readonly most: number;
  }[];
}

/** Decides which tasks the next claim asks for, and for which places, by what is known of both. */
export class ClaimPlanner {
  readonly #sessions: SessionPool;
  readonly #groups: ActiveGroups;
  readonly #runTimes: RunTimes;
  /** How many sessions are left to run dry, for tasks that must be alone in theirs. */
  reserved = 0;

  constructor({
    sessions,
    groups,
    runTimes,
  }: {
    readonly sessions: SessionPool;
    readonly groups: ActiveGroups;
    readonly runTimes: RunTimes;
  }) {
    this.#sessions = sessions;
    this.#groups = groups;
    this.#runTimes = runTimes;
  }

  /**
   * @param most how many tasks at most.
   * @param start how many more sessions may have something to do.
   * @param lookAhead how many tasks beyond those that find a session are counted.
   * @param groups how many groups to look at at least, since of many nothing may be due any more.
   */
  next(most: number, start: number, lookAhead: number, groups = 0): ClaimPlan | null {
    const offered = this.#sessions.offer(Math.min(most, start));
    if (offered.length > 0) {
      const plan = this.#planStarts(offered, lookAhead, most, groups);
      if (plan !== null) return plan;
      this.#sessions.withdraw(offered);
    }
    const behind = most > 0 ? this.#planBehind(most) : null;
    if (behind !== null || lookAhead === 0 || offered.length > 0) return behind;
    return this.#planStarts([], lookAhead, most, groups);
  }

  /** A single task, so that it is known which one the server refuses. */
  nextOne(start: number): ClaimPlan | null {
    const offered = this.#sessions.offer(Math.min(1, start));
    const plan = offered.length > 0 ? this.#planStarts(offered, 0, 1) : null;
    if (plan === null) this.#sessions.withdraw(offered);
    return plan;
  }

  /** One task for each free session, and more behind it when all are of one group and expected to be short. */
  #planStarts(
    offered: readonly OfferedSession[],
    lookAhead: number,
    most: number,
    groups = 0,
  ): ClaimPlan | null {
    const kept = offered.flatMap((session) => session.kept ?? []);
    const chosen = new Set<ActiveGroup>();
    for (const { hash } of kept) {
      const group = this.#groups.choose(hash);
      if (group !== null) chosen.add(group);
    }
    const ranked: ActiveGroup[] = [];
    const least = Math.max(1, offered.length, groups);
    while (ranked.length < Math.max(offered.length + lookAhead, groups)) {
      const group = this.#groups.next();
      if (group === null) break;
      chosen.add(group);
      ranked.push(group);
      // Those that are left are counted without a look.
      if (ranked.length >= least && this.#groups.startable >= lookAhead) break;
    }
    if (chosen.size === 0) return null;
    const fronts = offered.flatMap(({ owner, pid, kept: stays }) =>
      stays === null ? { owner, pid, front: true } : [],
    );
    const behind = kept.length > 0 ? [] : this.#behindFronts(offered, ranked, most - fronts.length);
    const places = [...fronts, ...behind];
    const look = Math.max(offered.length + behind.length + lookAhead, groups);
    const mosts = mostOfEach([...chosen], look);
    return this.#request(offered, places, kept, look, mosts, null);
  }

  /** Places behind tasks that start now, where a single group has any. */
  #behindFronts(
    offered: readonly OfferedSession[],
    ranked: readonly ActiveGroup[],
    most: number,
  ): QueueSlot[] {
    const [group] = ranked;
    const sessions = offered.map((session) => ({ ...session, aheadMs: 0, groups: [] }));
    const places = new QueueCapacity(sessions, this.#runTimes);
    if (group === undefined || ranked.length > 1) return [];
    if (!places.suits(group) || this.#runTimes.known(group.hash) === 0) return [];
    const behind: QueueSlot[] = [];
    for (let taken = 0; behind.length < most; taken += 1) {
      const place = places.behindAny(group.hash);
      if (place === null) break;
      // The first of each session is its front.
      if (taken >= offered.length) behind.push(place);
    }
    return behind;
  }

  /**
   * More tasks for busy sessions, best first. One that is expected to be long, or of which nothing is
   * known, is not put behind others: a session is left to run dry for it, and nothing worse is put
   * where it could have gone.
   */
  #planBehind(most: number): ClaimPlan | null {
    const places = new QueueCapacity(this.#sessions.roomy(), this.#runTimes);
    places.reserve(this.reserved);
    if (places.none) return null;
    const own = this.#waitingBehindOwn(places);
    const mosts = new Map<ActiveGroup, number>();
    const ownPlaces = new Map<ActiveGroup, readonly QueueSlot[]>();
    const shared: QueueSlot[] = [];
    const ranked: ActiveGroup[] = [];
    const passed: ActiveGroup[] = [];
    let left = most;
    while (left > 0 && !places.none) {
      const best = this.#groups.best;
      const mine = own[0];
      if (mine !== undefined && (best === null || mine === best || ownPrecedes(mine, best))) {
        own.shift();
        const behind = places.behindOwn(mine.hash, left);
        if (behind.length === 0) continue;
        this.#groups.choose(mine.hash);
        mosts.set(mine, behind.length);
        ownPlaces.set(mine, behind);
        left -= behind.length;
        continue;
      }
      const group = this.#groups.next();
      if (group === null) break;
      if (!places.suits(group)) {
        passed.push(group);
        places.reserve(1);
        continue;
      }
      const place = places.behindAny(group.hash);
      if (place === null) {
        passed.push(group);
        break;
      }
      shared.push(place);
      ranked.push(group);
      left -= 1;
    }
    for (const group of passed) this.#groups.release(group);
    for (const [group, count] of mostOfEach(ranked, shared.length)) mosts.set(group, count);
    if (mosts.size === 0) return null;
    return this.#request([], shared, [], shared.length, mosts, ownPlaces);
  }

  /** Whether it could have more sessions, and has not shown yet whether that is worth it. */
  #isNew({ hash, head, running }: ActiveGroup): boolean {
    return head !== null && head.max >= running && this.#runTimes.known(hash) === 0;
  }

  /** Groups of which more may wait in the sessions that have some, best first. */
  #waitingBehindOwn(places: QueueCapacity): ActiveGroup[] {
    const groups = places.groups.flatMap((hash) => {
      const group = this.#groups.get(hash);
      return group !== null && mayWait(group) && !this.#isNew(group) ? group : [];
    });
    return groups.toSorted((a, b) => (precedes(a, b, 0) ? -1 : 1));
  }

  #request(
    offered: readonly OfferedSession[],
    places: ClaimRequest["places"],
    kept: ClaimRequest["kept"],
    look: number,
    mosts: ReadonlyMap<ActiveGroup, number>,
    own: ReadonlyMap<ActiveGroup, ClaimRequest["places"]> | null,
  ): ClaimPlan {
    const chosen = [...mosts].map(([group, most]) => ({ group, head: group.head, most }));
    const groups = chosen.map(({ group, head, most }): ClaimedGroup => {
      const { max, id } = head ?? top;
      const { hash, running } = group;
      return { hash, running, max, id, most, places: own?.get(group) ?? null };
    });
    return {
      offered,
      chosen,
      groups,
      places,
      kept,
      look,
    };
  }
}

/** A task behind one of its own group starts when that has ended, so that one less runs by then. */
const ownPrecedes = (own: ActiveGroup, other: ActiveGroup): boolean => precedes(own, other, 1);

/** Whether more of its tasks may wait in the sessions that have some. */
function mayWait({ head, running, paused, chosen }: ActiveGroup): boolean {
  return head !== null && !paused && !chosen && head.max >= running - 1;
}

/**
 * How many of each group may be among the best `count` tasks, given that of each one only the first
 * is known: others come before its k-th one for certain where their first has a larger max minus
 * running than it can have.
 */
function mostOfEach(groups: readonly ActiveGroup[], count: number): Map<ActiveGroup, number> {
  const priorities = groups.map(({ head, running }) => (head?.max ?? top.max) - running);
  const sorted = priorities.toSorted((a, b) => b - a);
  const mosts = new Map<ActiveGroup, number>();
  for (const [index, group] of groups.entries()) {
    const priority = priorities[index] ?? 0;
    const allowed = Math.min(priority, group.least - group.running) + 1;
    let most = 1;
    let before = 0;
    while (most < allowed) {
      while (before < sorted.length && (sorted[before] ?? 0) > priority - most) before += 1;
      // The group's own first is among those before.
      if (most + Math.max(0, before - 1) >= count) break;
      most += 1;
    }
    mosts.set(group, most);
  }
  return mosts;
}

import { canStart, groupPrecedes, type ActiveGroup } from "./activeGroup.js";
import type { Gaps } from "./gaps.js";
import { Shares, StartableShares, type ShareRule, type SharedTask } from "./shares.js";
import { StartableGroups, type Startable } from "./startableGroups.js";

/** The lane of a group. Undefined if it is not known. */
type LaneOf = ActiveGroup["lane"];

/**
 * The groups that can start a task, in order of priority. With users, they are divided into lanes; without users, all of
 * them are in the owner's lane, null. Those whose lane or share is not known yet are in the lane undefined.
 */
export class GroupRanking {
  readonly #gaps: Gaps;
  readonly #withheld: ReadonlySet<number>;
  readonly #others = new Map<Exclude<LaneOf, null>, Startable>();
  #own: Startable;
  #entered: Startable;
  #lane: string | null = null;
  #shares: Shares | null = null;
  #splitsLanes = false;

  constructor(gaps: Gaps, withheld: ReadonlySet<number>) {
    this.#gaps = gaps;
    this.#withheld = withheld;
    this.#own = this.#entered = this.#newStartable();
  }

  /** Null if tasks are not divided into shares. */
  get shares(): Shares | null {
    return this.#shares;
  }

  /** Those of the lane that was entered last. Without users, there is only one. */
  get startable(): Startable {
    return this.#entered;
  }

  get lane(): string | null {
    return this.#lane;
  }

  get splitsLanes(): boolean {
    return this.#splitsLanes;
  }

  /** The lane of a group that becomes active. */
  get firstLane(): undefined | null {
    return this.#splitsLanes || this.#shares !== null ? undefined : null;
  }

  /** From now on, groups belong to lanes. */
  splitLanes(): void {
    this.#splitsLanes = true;
  }

  /** Forgets all groups. They have to be ranked again. */
  divide(rule: ShareRule | null, running: readonly SharedTask[]): void {
    this.#shares = rule === null ? null : new Shares(rule);
    this.#shares?.recount(running);
    this.#others.clear();
    this.#own = this.#newStartable();
    this.enterLane(null);
  }

  enterLane(lane: string | null): void {
    this.#lane = lane;
    this.#entered = this.#of(lane);
  }

  /** The lanes in which a group can start a task. */
  get startableLanes(): (string | null)[] {
    const lanes: (string | null)[] = this.#own.size > 0 ? [null] : [];
    for (const [lane, { size }] of this.#others) if (lane !== undefined && size > 0) lanes.push(lane);
    return lanes;
  }

  get hasUnknown(): boolean {
    return (this.#others.get(undefined)?.size ?? 0) > 0;
  }

  /** The startable groups whose lanes or shares are unknown. `place` must be called for each. */
  takeUnknown(): ActiveGroup[] {
    const unknown = this.#of(undefined);
    const taken: ActiveGroup[] = [];
    for (let group = unknown.take(); group !== null; group = unknown.take()) taken.push(group);
    return taken;
  }

  /** @param lane undefined if lane and share are still unknown */
  place(group: ActiveGroup, lane: LaneOf, share: string | null = null): void {
    this.remove(group);
    if (group.granted > 0) this.#shares?.grant(group.share ?? "", -group.granted);
    Object.assign(group, { lane, share, granted: 0 });
    this.rank(group);
  }

  /** To be called whenever anything has changed that decides whether the group can start a task, or its place. */
  rank(group: ActiveGroup): void {
    const couldStart = canStart(group) && !this.#withheld.has(group.hash);
    const isWaiting = this.#gaps.wait(group, couldStart);
    if (couldStart && !isWaiting) this.#of(group.lane).put(group);
    else this.remove(group);
  }

  remove(group: ActiveGroup): void {
    this.#of(group.lane).remove(group);
  }

  /** Takes the best group out of the ranking until it is put back. Null if no group can start a task. */
  takeBest(): ActiveGroup | null {
    return this.#claim(this.#entered.take());
  }

  takeBestIdle(): ActiveGroup | null {
    return this.#claim(this.#entered.takeIdle());
  }

  /** With shares: takes the groups that get the next `count` sessions. One group can get several of them. */
  takeForSessions(count: number): ActiveGroup[] {
    const taken = new Set<ActiveGroup>();
    for (let each = 0; each < count; each += 1) {
      const group = this.takeBest();
      if (group === null) break;
      taken.add(group);
      group.claiming = false;
      if (canStart(group, group.granted) && !group.head?.gapMs) this.#entered.put(group);
    }
    for (const group of taken) {
      group.claiming = true;
      this.#entered.remove(group);
    }
    return [...taken];
  }

  /** Whether the next session is for group `a` rather than for `b`. `fewer` is as for `groupPrecedes`. */
  precedes(a: ActiveGroup, b: ActiveGroup, fewer = 0): boolean {
    return this.#shares?.precedes(a, b, fewer) ?? groupPrecedes(a, b, fewer);
  }

  #claim(group: ActiveGroup | null): ActiveGroup | null {
    if (group === null) return null;
    group.claiming = true;
    if (this.#shares === null) return group;
    group.granted += 1;
    this.#shares.grant(group.share ?? "", 1);
    return group;
  }

  #of(lane: LaneOf): Startable {
    if (lane === null) return this.#own;
    let startable = this.#others.get(lane);
    if (startable === undefined)
      this.#others.set(lane, (startable = lane === undefined ? newStartableGroups() : this.#newStartable()));
    return startable;
  }

  #newStartable(): Startable {
    return this.#shares === null ? newStartableGroups() : new StartableShares(this.#shares);
  }
}

const newStartableGroups = (): StartableGroups => new StartableGroups((a, b) => groupPrecedes(a, b));

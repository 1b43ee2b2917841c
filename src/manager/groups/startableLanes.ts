import { groupPrecedes, type ActiveGroup } from "./activeGroup.js";
import { StartableShares, type Shares } from "./shares.js";
import { StartableGroups, type Startable } from "./startableGroups.js";

/** The lane of a group. Undefined if it is not known. */
type LaneOf = ActiveGroup["lane"];

/**
 * With users: the startable groups, divided into lanes. Without users, all of them are in the owner's lane, null. Those
 * whose lane or share is not known yet are in the lane undefined.
 */
export class StartableLanes {
  readonly #shares: Shares | null;
  readonly #own: Startable;
  readonly #others = new Map<Exclude<LaneOf, null>, Startable>();
  /** Those of the lane that was entered last. */
  entered: Startable;
  lane: string | null = null;

  constructor(shares: Shares | null = null) {
    this.#shares = shares;
    this.#own = this.entered = this.#new();
  }

  enter(lane: string | null): void {
    this.lane = lane;
    this.entered = this.of(lane);
  }

  of(lane: LaneOf): Startable {
    if (lane === null) return this.#own;
    let startable = this.#others.get(lane);
    if (startable === undefined)
      this.#others.set(lane, (startable = lane === undefined ? newStartableGroups() : this.#new()));
    return startable;
  }

  /** The lanes in which a group can start a task. */
  get startable(): (string | null)[] {
    const lanes: (string | null)[] = this.#own.size > 0 ? [null] : [];
    for (const [lane, { size }] of this.#others) if (lane !== undefined && size > 0) lanes.push(lane);
    return lanes;
  }

  get hasUnknown(): boolean {
    return (this.#others.get(undefined)?.size ?? 0) > 0;
  }

  takeUnknown(): ActiveGroup[] {
    const unknown = this.of(undefined);
    const taken: ActiveGroup[] = [];
    for (let group = unknown.take(); group !== null; group = unknown.take()) taken.push(group);
    return taken;
  }

  #new(): Startable {
    return this.#shares === null ? newStartableGroups() : new StartableShares(this.#shares);
  }
}

const newStartableGroups = (): StartableGroups => new StartableGroups((a, b) => groupPrecedes(a, b));

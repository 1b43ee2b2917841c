import { IndexedHeap, type Ranked } from "../../shared/indexedHeap.js";

/** A group's first due task, as far as is known: nothing before it is due. */
export interface Head {
  /** How many others of its group it starts beside. */
  readonly max: number;
  readonly id: bigint;
}

/** What is known of a group that runs, or has something due. */
export interface ActiveGroup extends Ranked {
  readonly hash: number;
  /** How many have tasks of it: sessions of ours, and tasks that are rescued when their sessions are gone. */
  running: number;
  /** How many of its tasks wait in sessions' queues, behind others. */
  waiting: number;
  /** The least max of those that wait: no more may run beside them once they start. */
  least: number;
  /** Null when nothing is due. */
  head: Head | null;
  /** The round of looks in which that was last learnt. */
  round: number;
  paused: boolean;
  /** Whether a claim is under way that takes tasks of it. */
  chosen: boolean;
}

/** What sessions have of a group. */
export interface GroupLoad {
  readonly sessions: number;
  /** How many of its tasks wait behind others. */
  readonly waiting: number;
  /** The least max of those, Infinity without any. */
  readonly least: number;
}

export const noLoad: GroupLoad = { sessions: 0, waiting: 0, least: Infinity };

/**
 * The groups of which something runs or is due, and which of them comes next: that whose first task
 * has the larger max minus running, then the smaller id.
 *
 * The heads are hints. One that is not due any more costs a look, at most until a round of looks has been
 * made, and one that is not known yet starts later, but what a claim takes is decided by the rows themselves.
 */
export class ActiveGroups {
  readonly #groups = new Map<number, ActiveGroup>();
  readonly #startable = new IndexedHeap<ActiveGroup>((a, b) => precedes(a, b, 0));
  /** Of which nothing may start until it is allowed. */
  readonly #withheld = new Set<number>();
  #orphans = 0;
  #busy = 0;
  #round = 0;

  /** How many run over all groups: of our sessions, and elsewhere. */
  get total(): number {
    return this.#busy + this.#orphans;
  }

  /** How many groups have a task that may start. */
  get startable(): number {
    return this.#startable.size;
  }

  /** Whether that group is one of them. */
  mayStart(hash: number): boolean {
    return (this.#groups.get(hash)?.rank ?? -1) >= 0;
  }

  /** Whether there are groups of which nothing may start. */
  get withholds(): boolean {
    return this.#withheld.size > 0;
  }

  /** Nothing of the group may start until `allow`. */
  withhold(hash: number): void {
    this.#withheld.add(hash);
    this.#rank(this.#of(hash));
  }

  allow(hash: number): void {
    this.#withheld.delete(hash);
    this.#rank(this.#of(hash));
  }

  isWithheld(hash: number): boolean {
    return this.#withheld.has(hash);
  }

  /** The one that comes next, null when nothing may start. */
  get best(): ActiveGroup | null {
    return this.#startable.best;
  }

  get(hash: number): ActiveGroup | null {
    return this.#groups.get(hash) ?? null;
  }

  /** A task runs of which no session of ours knows. */
  begin(hash: number): void {
    this.#orphans += 1;
    this.join(hash);
  }

  end(hash: number): void {
    this.#orphans -= 1;
    this.leave(hash);
  }

  /** A session of ours has tasks of the group from now on. */
  join(hash: number): void {
    const group = this.#of(hash);
    group.running += 1;
    this.#rank(group);
  }

  leave(hash: number): void {
    const group = this.#of(hash);
    group.running -= 1;
    this.#rank(group);
  }

  /** A session of ours has something to do from now on. */
  occupy(): void {
    this.#busy += 1;
  }

  vacate(): void {
    this.#busy -= 1;
  }

  /** A task waits in a session's queue. */
  wait(hash: number, max: number): void {
    const group = this.#of(hash);
    group.waiting += 1;
    group.least = Math.min(group.least, max);
    this.#rank(group);
  }

  /** It waits no more. */
  stir(hash: number): void {
    const group = this.#of(hash);
    group.waiting -= 1;
    if (group.waiting === 0) group.least = Infinity;
    this.#rank(group);
  }

  /** A task is due: it is the head if it comes before what is known. */
  offer(hash: number, task: Head): void {
    const group = this.#of(hash);
    if (group.head !== null && !comesBefore(task, group.head)) return;
    group.head = task;
    group.round = this.#round;
    this.#rank(group);
  }

  /** This is the head by now, and whether the group is paused. */
  see(hash: number, head: Head | null, paused: boolean): void {
    const group = this.#of(hash);
    group.head = head;
    group.paused = paused;
    group.round = this.#round;
    this.#rank(group);
  }

  /** From now on every group is looked at of which something is due. */
  beginRound(): void {
    this.#round += 1;
  }

  /** All were: of those of which nothing was seen or heard meanwhile nothing is due any more. */
  endRound(): void {
    for (const group of this.#groups.values()) {
      if (group.head === null || group.round === this.#round) continue;
      group.head = null;
      this.#rank(group);
    }
  }

  /** Takes the group out that comes next, until `release`; null when nothing may start. */
  next(): ActiveGroup | null {
    const group = this.#startable.take();
    if (group !== null) group.chosen = true;
    return group;
  }

  /** Takes a group out that may have nothing to start, until `release`; null when it is out already, or withheld. */
  choose(hash: number): ActiveGroup | null {
    const group = this.#of(hash);
    if (group.chosen || this.#withheld.has(hash)) return null;
    group.chosen = true;
    this.#startable.remove(group);
    return group;
  }

  release(group: ActiveGroup): void {
    group.chosen = false;
    this.#rank(group);
  }

  /** Counts anew what runs and waits, by what sessions have and who else runs something; no head is known then. */
  recount(load: {
    readonly busy: number;
    readonly groups: ReadonlyMap<number, GroupLoad>;
    /** Of each task that runs of which no session of ours knows, the hash. */
    readonly orphans: readonly number[];
  }): void {
    this.#busy = load.busy;
    this.#orphans = load.orphans.length;
    for (const group of this.#groups.values()) {
      const { sessions, waiting, least } = load.groups.get(group.hash) ?? noLoad;
      Object.assign(group, { running: sessions, waiting, least, head: null, paused: false });
    }
    for (const [hash, { sessions, waiting, least }] of load.groups)
      Object.assign(this.#of(hash), { running: sessions, waiting, least });
    for (const hash of load.orphans) this.#of(hash).running += 1;
    for (const group of this.#groups.values()) this.#rank(group);
  }

  #of(hash: number): ActiveGroup {
    let group = this.#groups.get(hash);
    if (group === undefined) {
      group = {
        hash,
        rank: -1,
        running: 0,
        waiting: 0,
        least: Infinity,
        head: null,
        round: this.#round,
        paused: false,
        chosen: false,
      };
      this.#groups.set(hash, group);
    }
    return group;
  }

  #rank(group: ActiveGroup): void {
    if (mayStart(group) && !this.#withheld.has(group.hash)) this.#startable.put(group);
    else this.#startable.remove(group);
    const idle = group.running === 0 && group.waiting === 0 && group.head === null;
    if (idle && !group.chosen) this.#groups.delete(group.hash);
  }
}

/** Whether one more session may have the group's first task. */
function mayStart({ head, running, least, paused, chosen }: ActiveGroup): boolean {
  return head !== null && !paused && !chosen && head.max >= running && least >= running;
}

/** In the order of a group's tasks. */
export function comesBefore(a: Head, b: Head): boolean {
  return a.max === b.max ? a.id < b.id : a.max > b.max;
}

/**
 * Whether the first task of `a` comes before that of `b`.
 *
 * @param fewer how many less of `a` will run when it starts.
 */
export function precedes(a: ActiveGroup, b: ActiveGroup, fewer: number): boolean {
  if (a.head === null || b.head === null) return b.head === null;
  const difference = a.head.max - a.running + fewer - (b.head.max - b.running);
  return difference === 0 ? a.head.id < b.head.id : difference > 0;
}

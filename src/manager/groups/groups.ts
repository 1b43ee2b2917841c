import { headPrecedes, newActiveGroup, noLoad, type ActiveGroup, type GroupLoad, type Head } from "./activeGroup.js";
import { Gaps, mayStartAnyMoment } from "./gaps.js";
import { GroupRanking } from "./groupRanking.js";
import { RunningKeys } from "./runningKeys.js";
import type { ShareRule, Shares, SharedTask } from "./shares.js";
import type { Startable } from "./startableGroups.js";

/** A group that has tasks in sessions, and in how many. */
export type GroupInUse = Pick<ActiveGroup, "hash" | "running">;

/** A number of running tasks that exceeds every `max`, which is a 4-byte integer. */
const aboveAnyMax = 2_147_483_648;

/**
 * The groups that have running or due tasks, in order of priority: the `max` of their head minus the number of running
 * tasks. Among groups with the same priority, the one whose head has the smallest id comes first.
 *
 * Heads are only hints: the rows themselves decide which tasks a claim takes. If a head is no longer due, claims that
 * start reading at it may find nothing until the current scan round ends.
 */
export class ActiveGroups {
  readonly #groups = new Map<number, ActiveGroup>();
  readonly #withheld = new Set<number>();
  readonly gaps: Gaps;
  readonly ranking: GroupRanking;
  #starting = 0;
  readonly runningKeys = new RunningKeys();
  #orphans = 0;
  #busy = 0;
  #usingReserve = 0;
  #round = 0;

  /** @param now returns the time of the process's clock, in ms */
  constructor(now: () => number = () => performance.now()) {
    this.gaps = new Gaps(now);
    this.ranking = new GroupRanking(this.gaps, this.#withheld);
  }

  /** Number of busy sessions plus orphans (tasks of dead sessions). */
  get totalRunning(): number {
    return this.#busy + this.#orphans;
  }

  get size(): number {
    return this.#groups.size;
  }

  get hasHeads(): boolean {
    for (const { head } of this.#groups.values()) if (head !== null) return true;
    return false;
  }

  /**
   * Returns the groups that have tasks in sessions. In a group whose tasks are queued or have not reported their start,
   * no other task may start, so its `running` is larger than any `max`.
   */
  inUse(): GroupInUse[] {
    const groups: GroupInUse[] = [];
    for (const group of this.#groups.values()) {
      const { hash, running } = group;
      if (mayStartAnyMoment(group)) groups.push({ hash, running: aboveAnyMax });
      else if (running > 0) groups.push({ hash, running });
    }
    return groups;
  }

  /**
   * From now on, groups belong to shares, or with null no longer.
   *
   * @param running the tasks that sessions run
   */
  divide(rule: ShareRule | null, running: readonly SharedTask[]): void {
    this.ranking.divide(rule, running);
    this.#usingReserve = 0;
    const lane = this.ranking.firstLane;
    for (const group of this.#groups.values()) {
      Object.assign(group, { lane, share: null, granted: 0, heapIndex: -1, isRankedIdle: true, usesReserve: false });
      this.#rank(group);
    }
  }

  get shares(): Shares | null {
    return this.ranking.shares;
  }

  get startable(): Startable {
    return this.ranking.startable;
  }

  hashesIn(lane: string | null): number[] {
    return [...this.#groups.values()].flatMap((group) => (group.lane === lane ? group.hash : []));
  }

  canStart(hash: number): boolean {
    return (this.#groups.get(hash)?.heapIndex ?? -1) >= 0;
  }

  get hasWithheld(): boolean {
    return this.#withheld.size > 0;
  }

  /** Keeps the group's tasks from starting until `allow` is called. */
  withhold(hash: number): void {
    this.#withheld.add(hash);
    this.#rank(this.#getOrCreate(hash));
  }

  allow(hash: number): void {
    this.#withheld.delete(hash);
    this.#rank(this.#getOrCreate(hash));
  }

  isWithheld(hash: number): boolean {
    return this.#withheld.has(hash);
  }

  /** A task of the group has just started, or has been given to a session that starts it at once. */
  noteStart(hash: number): void {
    const startedAt = this.gaps.noteStart();
    const group = this.#groups.get(hash);
    if (group === undefined) {
      this.gaps.remember(hash, startedAt);
      return;
    }
    group.startedAt = startedAt;
    if (group.head?.gapMs) this.#rank(group);
  }

  addStarting(hash: number): void {
    const group = this.#getOrCreate(hash);
    group.starting += 1;
    this.#starting += 1;
    this.#rank(group);
  }

  /** The session has reported the start, or no longer has the task. */
  removeStarting(hash: number): void {
    const group = this.#getOrCreate(hash);
    group.starting -= 1;
    this.#starting -= 1;
    this.#rank(group);
  }

  get hasStarting(): boolean {
    return this.#starting > 0;
  }

  /**
   * Another manager may have started tasks of any group.
   *
   * @param quietMs since when none has started any, in ms
   */
  forgetStarts(quietMs = 0): void {
    const startedAt = this.gaps.forget(quietMs);
    for (const group of this.#groups.values()) {
      group.startedAt = startedAt;
      this.#rank(group);
    }
  }

  endGaps(): void {
    for (let next = this.gaps.ended; next !== null; next = this.gaps.ended) this.#rank(next);
  }

  get usingReserve(): number {
    return this.#usingReserve;
  }

  /**
   * The task that runs in the group got a reserved session. With shares, this is not counted: those that run something get
   * no session until as many as the reserve are free again.
   */
  useReserve(hash: number): void {
    const group = this.#groups.get(hash);
    if (this.shares !== null || group === undefined || group.running === 0 || group.usesReserve) return;
    group.usesReserve = true;
    this.#usingReserve += 1;
  }

  /** Whether the reserve is for others than this group, because its share or, without shares, the group runs something. */
  runsAnything(hash: number, running: number): boolean {
    const share = this.#groups.get(hash)?.share ?? null;
    if (this.shares === null || share === null) return running > 0;
    return this.shares.of(share).running > 0;
  }

  get(hash: number): ActiveGroup | null {
    return this.#groups.get(hash) ?? null;
  }

  addOrphan(hash: number, key: string | null = null): void {
    this.#orphans += 1;
    this.runningKeys.add(key);
    this.addSession(hash);
  }

  removeOrphan(hash: number, key: string | null = null): void {
    this.#orphans -= 1;
    this.runningKeys.remove(key);
    this.removeSession(hash);
  }

  addSession(hash: number): void {
    const group = this.#getOrCreate(hash);
    group.running += 1;
    this.#rank(group);
  }

  removeSession(hash: number): void {
    const group = this.#getOrCreate(hash);
    group.running -= 1;
    if (group.running === 0 && group.usesReserve) {
      group.usesReserve = false;
      this.#usingReserve -= 1;
    }
    this.#rank(group);
  }

  addBusySession(): void {
    this.#busy += 1;
  }

  removeBusySession(): void {
    this.#busy -= 1;
  }

  enqueue(hash: number, max: number): void {
    const group = this.#getOrCreate(hash);
    group.queuedTasks += 1;
    group.minQueuedMax = Math.min(group.minQueuedMax, max);
    this.#rank(group);
  }

  /** A queued task became its session's current task or left the queue. */
  dequeue(hash: number): void {
    const group = this.#getOrCreate(hash);
    group.queuedTasks -= 1;
    if (group.queuedTasks === 0) group.minQueuedMax = Infinity;
    this.#rank(group);
  }

  /** Makes a due task the head of its group if the task precedes the known head. */
  addDue(hash: number, task: Head): void {
    const group = this.#getOrCreate(hash);
    if (group.head !== null && !headPrecedes(task, group.head)) return;
    group.head = task;
    group.round = this.#round;
    this.#rank(group);
  }

  setHead(hash: number, head: Head | null, paused: boolean): void {
    const group = this.#getOrCreate(hash);
    group.head = head;
    group.paused = paused;
    group.round = this.#round;
    // Groups of several lanes may have the same hash.
    if (head === null && this.ranking.splitsLanes) this.ranking.place(group, undefined);
    this.#rank(group);
  }

  beginRound(): void {
    this.#round += 1;
  }

  /** Ends the scan round, and drops every head that was not set during the round. */
  endRound(): void {
    for (const group of this.#groups.values()) {
      if (group.head === null || group.round === this.#round) continue;
      group.head = null;
      this.#rank(group);
    }
  }

  /** Takes this group, whether or not it can start a task. Null if it is already taken or is withheld. */
  take(hash: number): ActiveGroup | null {
    const group = this.#getOrCreate(hash);
    if (group.claiming || this.#withheld.has(hash)) return null;
    group.claiming = true;
    this.ranking.remove(group);
    return group;
  }

  putBack(group: ActiveGroup): void {
    const { share, granted } = group;
    group.claiming = false;
    group.granted = 0;
    this.#rank(group);
    if (granted > 0) this.shares?.grant(share ?? "", -granted);
  }

  /** Sets all counts from the sessions' queues and the orphans, and forgets all heads. */
  recount(load: {
    readonly busy: number;
    readonly groups: ReadonlyMap<number, GroupLoad>;
    readonly orphans: readonly number[];
    /** The keys of all tasks in the sessions' queues and of the orphans. */
    readonly keys: readonly string[];
    /** The tasks that sessions run. */
    readonly current: readonly SharedTask[];
  }): void {
    this.runningKeys.recount(load.keys);
    this.shares?.recount(load.current);
    this.#busy = load.busy;
    this.#orphans = load.orphans.length;
    const { sessions: running, ...none } = noLoad;
    for (const group of this.#groups.values())
      Object.assign(group, { ...none, running, head: null, paused: false, usesReserve: false });
    this.#starting = this.#usingReserve = 0;
    for (const [hash, { sessions, ...queued }] of load.groups) {
      Object.assign(this.#getOrCreate(hash), { ...queued, running: sessions });
      this.#starting += queued.starting;
    }
    for (const hash of load.orphans) this.#getOrCreate(hash).running += 1;
    for (const group of this.#groups.values()) this.#rank(group);
  }

  #getOrCreate(hash: number): ActiveGroup {
    let group = this.#groups.get(hash);
    if (group === undefined) {
      group = newActiveGroup(hash, this.ranking.firstLane, this.#round, this.gaps.take(hash));
      this.#groups.set(hash, group);
    }
    return group;
  }

  #rank(group: ActiveGroup): void {
    this.ranking.rank(group);
    const idle = group.running === 0 && group.queuedTasks === 0 && group.head === null && group.starting === 0;
    if (!idle || group.claiming) return;
    this.#groups.delete(group.hash);
    this.gaps.remember(group.hash, group.startedAt);
  }
}

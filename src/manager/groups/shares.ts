import { IndexedHeap, type HeapItem } from "../../shared/indexedHeap.js";
import { shareOf } from "../../shared/shareOf.js";
import type { ClaimedTask } from "../model/tasks.js";
import { runTimeWeight } from "../model/tuning.js";
import { groupPrecedes, type ActiveGroup } from "./activeGroup.js";
import type { Startable } from "./startableGroups.js";

/** How the tasks of a table are divided into shares, and their weights. */
export interface ShareRule {
  /** `pg_task.share`, not empty. */
  readonly setting: string;
  readonly weights: Readonly<Record<string, number>>;
}

export interface Share {
  readonly name: string;
  readonly weight: number;
  /** How many sessions run its tasks. */
  running: number;
  /** How many more sessions the claim that is being made gives to it. */
  granted: number;
  /**
   * How long its tasks have run, in ms, divided by the weight. A share that had nothing to start meanwhile does not come
   * before others for that: it continues where they are.
   */
  used: number;
  /** How long its recent runs took on average, in ms. Null if none has ended. */
  typicalMs: number | null;
  readonly queues: ShareQueue[];
}

/** The groups of a share that can start a task, in one lane. */
interface ShareQueue extends HeapItem {
  readonly share: Share;
  readonly groups: IndexedHeap<ActiveGroup>;
  readonly startable: StartableShares;
  isRankedIdle: boolean;
}

export type SharedTask = Pick<ClaimedTask, "group">;

/** Remembered shares that nothing is known of but what they have used. */
const minRemembered = 1000;

/** The shares of a table (`pg_task.share`), with the sessions that each of them has. */
export class Shares {
  readonly rule: ShareRule;
  readonly #shares = new Map<string, Share>();
  /** What the share had used that got the last session. */
  #clock = 0;
  #sweepAt = minRemembered;

  constructor(rule: ShareRule) {
    this.rule = rule;
  }

  /** How many sessions run tasks of each share that has any. */
  get runningByName(): Record<string, number> {
    const running: Record<string, number> = {};
    for (const share of this.#shares.values()) if (share.running > 0) running[share.name] = share.running;
    return running;
  }

  nameOf({ group }: SharedTask): string {
    return shareOf(this.rule.setting, group) ?? "";
  }

  of(name: string): Share {
    let share = this.#shares.get(name);
    if (share === undefined) {
      this.#sweep();
      const { weights } = this.rule;
      const weight = (Object.hasOwn(weights, name) ? weights[name] : undefined) ?? 1;
      share = {
        name,
        weight,
        running: 0,
        granted: 0,
        used: this.#clock,
        typicalMs: null,
        queues: [],
      };
      this.#shares.set(name, share);
    }
    return share;
  }

  /** A session has begun to run the task. */
  started(task: SharedTask): void {
    const share = this.of(this.nameOf(task));
    this.#clock = Math.max(this.#clock, share.used);
    share.running += 1;
    rank(share);
  }

  ended(task: SharedTask, ranMs: number): void {
    const share = this.of(this.nameOf(task));
    share.running -= 1;
    share.used += ranMs / share.weight;
    share.typicalMs = share.typicalMs === null ? ranMs : share.typicalMs + (ranMs - share.typicalMs) * runTimeWeight;
    rank(share);
  }

  /** How many sessions run tasks of the task's share. */
  runs(task: SharedTask): number {
    return this.of(this.nameOf(task)).running;
  }

  /** How long a run of the share takes, in ms: Infinity if its first runs have not ended, undefined if it is not known. */
  expectedMs(name: string): number | undefined {
    const { running, typicalMs } = this.of(name);
    return typicalMs ?? (running > 0 ? Infinity : undefined);
  }

  /** The claim that is being made gives the share `count` more sessions, or fewer. */
  grant(name: string, count: number): void {
    const share = this.of(name);
    share.granted += count;
    rank(share);
  }

  /** Called before a share has its first startable group. */
  resume(share: Share): void {
    if (share.granted === 0) share.used = Math.max(share.used, this.#clock);
  }

  /** Whether the next session is for group `a` rather than for `b`. */
  precedes(a: ActiveGroup, b: ActiveGroup, fewer: number): boolean {
    const [one, other] = [this.of(a.share ?? ""), this.of(b.share ?? "")];
    return sharePrecedes(one, other) ?? groupPrecedes(a, b, fewer);
  }

  /** Counts the running tasks anew. */
  recount(running: readonly SharedTask[]): void {
    for (const share of this.#shares.values()) {
      share.running = 0;
      rank(share);
    }
    for (const task of running) this.started(task);
  }

  /** Forgets shares that nothing waits or runs in, unless they have used more than others. */
  #sweep(): void {
    if (this.#shares.size < this.#sweepAt) return;
    for (const [name, { running, granted, used, queues }] of this.#shares)
      if (running + granted + queues.length === 0 && used <= this.#clock) this.#shares.delete(name);
    this.#sweepAt = Math.max(minRemembered, 2 * this.#shares.size);
  }
}

function rank({ queues }: Share): void {
  for (const queue of queues) queue.startable.rank(queue);
}

/** Undefined if neither comes first. */
function sharePrecedes(a: Share, b: Share): boolean | undefined {
  if (a === b) return undefined;
  const [load, other] = [(a.running + a.granted) / a.weight, (b.running + b.granted) / b.weight];
  if (load !== other) return load < other;
  return a.used === b.used ? undefined : a.used < b.used;
}

const precedesInShare = (a: ActiveGroup, b: ActiveGroup): boolean => groupPrecedes(a, b, b.granted - a.granted);

function queuePrecedes(a: ShareQueue, b: ShareQueue): boolean {
  const first = sharePrecedes(a.share, b.share);
  if (first !== undefined) return first;
  return a.groups.best !== null && b.groups.best !== null && precedesInShare(a.groups.best, b.groups.best);
}

/**
 * The groups that can start a task, if tasks are divided into shares. The next session goes to the share that has the
 * fewest for its weight; of those with equally many, to the one that has used the least.
 */
export class StartableShares implements Startable {
  readonly #shares: Shares;
  readonly #queues = new Map<Share, ShareQueue>();
  readonly #idle = new IndexedHeap<ShareQueue>(queuePrecedes);
  readonly #working = new IndexedHeap<ShareQueue>(queuePrecedes);
  size = 0;
  /** A share that runs nothing comes first anyway. */
  readonly passIdleOver = false;

  constructor(shares: Shares) {
    this.#shares = shares;
  }

  get best(): ActiveGroup | null {
    return (this.#idle.best ?? this.#working.best)?.groups.best ?? null;
  }

  get idle(): number {
    return this.#idle.size;
  }

  /** Sessions stay reserved for shares that run nothing, whoever waits: those of them that wait get them. */
  get needReserve(): boolean {
    return this.size > 0;
  }

  put(group: ActiveGroup): void {
    const share = this.#shares.of(group.share ?? "");
    let queue = this.#queues.get(share);
    if (queue === undefined) {
      this.#shares.resume(share);
      const groups = new IndexedHeap<ActiveGroup>(precedesInShare);
      queue = { heapIndex: -1, share, groups, startable: this, isRankedIdle: true };
      this.#queues.set(share, queue);
      share.queues.push(queue);
    }
    if (group.heapIndex < 0) this.size += 1;
    queue.groups.put(group);
    this.rank(queue);
  }

  remove(group: ActiveGroup): void {
    if (group.heapIndex < 0) return;
    const queue = this.#queues.get(this.#shares.of(group.share ?? ""));
    if (queue === undefined) return;
    this.size -= 1;
    queue.groups.remove(group);
    this.rank(queue);
  }

  take(): ActiveGroup | null {
    const { best } = this;
    if (best !== null) this.remove(best);
    return best;
  }

  takeIdle(): ActiveGroup | null {
    return this.#idle.size === 0 ? null : this.take();
  }

  /** The best group or the number of sessions of the share has changed. */
  rank(queue: ShareQueue): void {
    const { share, groups } = queue;
    const isIdle = share.running + share.granted === 0;
    if (queue.isRankedIdle !== isIdle || groups.size === 0)
      (queue.isRankedIdle ? this.#idle : this.#working).remove(queue);
    queue.isRankedIdle = isIdle;
    if (groups.size > 0) return (isIdle ? this.#idle : this.#working).put(queue);
    this.#queues.delete(share);
    share.queues.splice(share.queues.indexOf(queue), 1);
  }
}

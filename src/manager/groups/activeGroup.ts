import type { HeapItem } from "../../shared/indexedHeap.js";

/** The head of a group: its first known due task. */
export interface Head {
  /** How many other tasks of its group can be running when the task starts. */
  readonly max: number;
  readonly id: bigint;
  /** The task's `gap`, in ms. 0 if it has none, or if it is not known. */
  readonly gapMs?: number;
}

/** A position before every task of a group. */
export const beforeFirst: Head = { max: 2_147_483_647, id: -(2n ** 63n) };

/** How many tasks of one group the sessions have. */
export interface GroupLoad {
  readonly sessions: number;
  readonly queuedTasks: number;
  /** The smallest `max` of the queued tasks. Infinity if no task is queued. */
  readonly minQueuedMax: number;
  /** How many tasks with a gap have sessions that have not reported their start yet. */
  readonly starting: number;
}

export const noLoad: GroupLoad = { sessions: 0, queuedTasks: 0, minQueuedMax: Infinity, starting: 0 };

export interface ActiveGroup extends HeapItem, Omit<GroupLoad, "sessions"> {
  readonly hash: number;
  /** Whose sessions may run its tasks (`laneOf`). Undefined if that is not known yet; without users always null. */
  lane: string | null | undefined;
  /** Null if tasks are not divided into shares, or if that of the group is not known yet. */
  share: string | null;
  /** With shares: how many sessions the claim that is being made gives to the group. */
  granted: number;
  /** How many sessions have tasks of the group. Orphans (tasks of dead sessions) are counted as well. */
  running: number;
  queuedTasks: number;
  /** While tasks are queued, this limits how many sessions can have tasks of the group. */
  minQueuedMax: number;
  starting: number;
  /** Null if no due task is known. */
  head: Head | null;
  /** The scan round in which the head was last set. */
  round: number;
  paused: boolean;
  /** Whether the head is probably exclusive, that is, has to be alone in its session's queue. The last claim tells. */
  expectsExclusive: boolean;
  claiming: boolean;
  isRankedIdle: boolean;
  /** Whether the group's first task got a reserved session, before its turn. False again once no task of it runs. */
  usesReserve: boolean;
  /** The latest time at which a task of the group may have started, in ms, on the process's clock. */
  startedAt: number;
  /** The group's place among the groups that wait for the gap of their head. Null if it never had to wait. */
  wait: GapWait | null;
}

/** A group that could start its head now, if it were not for the gap of the head. */
export interface GapWait extends HeapItem {
  readonly group: ActiveGroup;
  /** When the gap will be over, in ms, on the process's clock. */
  until: number;
}

export function newActiveGroup(hash: number, lane: ActiveGroup["lane"], round: number, startedAt: number): ActiveGroup {
  return {
    hash,
    lane,
    share: null,
    granted: 0,
    heapIndex: -1,
    running: 0,
    queuedTasks: 0,
    minQueuedMax: Infinity,
    head: null,
    round,
    paused: false,
    expectsExclusive: false,
    claiming: false,
    isRankedIdle: true,
    usesReserve: false,
    startedAt,
    starting: 0,
    wait: null,
  };
}

/**
 * Whether one more session can run the group's head. A task starts only if at most `max` others of its group are running.
 * The claims check this again in SQL, for each row.
 *
 * @param more how many more tasks of the group run by then
 */
export function canStart({ head, running, minQueuedMax, paused, claiming }: ActiveGroup, more = 0): boolean {
  const others = running + more;
  return head !== null && !paused && !claiming && head.max >= others && minQueuedMax >= others;
}

/** Whether more tasks of the group can queue behind its own tasks: each starts when the one before it has ended. */
export function canQueue({ head, running, paused, expectsExclusive, claiming }: ActiveGroup): boolean {
  return head !== null && !expectsExclusive && !head.gapMs && !paused && !claiming && head.max >= running - 1;
}

export function headPrecedes(a: Head, b: Head): boolean {
  return a.max === b.max ? a.id < b.id : a.max > b.max;
}

/** @param fewer how many running tasks of `a` will have ended when its head starts */
export function groupPrecedes(a: ActiveGroup, b: ActiveGroup, fewer = 0): boolean {
  if (a.head === null || b.head === null) return b.head === null;
  const difference = a.head.max - a.running + fewer - (b.head.max - b.running);
  return difference === 0 ? a.head.id < b.head.id : difference > 0;
}

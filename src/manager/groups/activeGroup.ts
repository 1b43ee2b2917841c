import type { HeapItem } from "../../shared/indexedHeap.js";
import type { Head } from "./groupLimit.js";

/** A group that has running, queued or due tasks. */
export interface ActiveGroup extends HeapItem {
  readonly hash: number;
  /** How many sessions have tasks of the group. Orphans (tasks of dead sessions) are counted as well. */
  running: number;
  /** How many tasks of the group are queued behind other tasks. */
  queuedTasks: number;
  /**
   * The smallest `max` of the group's queued tasks. While they wait, it limits how many sessions can have tasks of the
   * group.
   */
  minQueuedMax: number;
  /** The first known due task of the group. Null if no due task is known. */
  head: Head | null;
  /** The scan round in which the head (first due task) was last set. */
  round: number;
  paused: boolean;
  /**
   * Whether the head is probably exclusive, that is, has to be alone in its session's queue: the last claim has found
   * that the group's next task is exclusive.
   */
  expectsExclusive: boolean;
  /** Whether a claim that reads this group is in progress. */
  claiming: boolean;
  /** Whether the group was ranked among those without running tasks when it was last ranked. */
  isRankedIdle: boolean;
  /** Whether the group's first task got a reserved session, before its turn. False again once no task of it runs. */
  usesReserve: boolean;
  /** The latest time at which a task of the group may have started, in ms, on the process's clock. */
  startedAt: number;
  /** How many tasks with a gap were given to sessions that have not reported their start yet. */
  starting: number;
  /** The group's place among the groups that wait for the gap of their head. Null if it never had to wait. */
  wait: GapWait | null;
}

/** A group that could start its head now, if it were not for the gap of the head. */
export interface GapWait extends HeapItem {
  readonly group: ActiveGroup;
  /** When the gap will be over, in ms, on the process's clock. */
  until: number;
}

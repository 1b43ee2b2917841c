/** Position of the head, which is the first known due task of a group. */
export interface Head {
  /** How many other tasks of its group can be running when the task starts. */
  readonly max: number;
  readonly id: bigint;
  /** The task's `gap`, in ms. 0 if it has none, or if it is not known. */
  readonly gapMs?: number;
}

/**
 * The group limit: a task starts only if at most `max` other tasks of its group are running. The manager checks the
 * limit here, for the group's head (first due task), to decide which groups a claim reads. The claims check it again in
 * SQL, for each row: `claimFull` by the task's priority, `claimQueued` for tasks behind others in a session's queue.
 */
interface GroupState {
  /** Null if no due task is known. */
  readonly head: Head | null;
  /** How many sessions have tasks of the group. */
  readonly running: number;
  /** The smallest `max` of the group's queued tasks. */
  readonly minQueuedMax: number;
  readonly paused: boolean;
  /** Whether the head is probably exclusive, that is, has to be alone in its session's queue. */
  readonly expectsExclusive: boolean;
  /** Whether a claim that reads this group is in progress. */
  readonly claiming: boolean;
}

/** Returns whether one more session can run the group's head. */
export function canStart({ head, running, minQueuedMax, paused, claiming }: GroupState): boolean {
  return head !== null && !paused && !claiming && head.max >= running && minQueuedMax >= running;
}

/**
 * Returns whether more tasks of the group can queue behind its own tasks. When such a task starts, the task before it
 * has ended. An exclusive task is never queued.
 */
export function canQueue({ head, running, paused, expectsExclusive, claiming }: GroupState): boolean {
  return head !== null && !expectsExclusive && !head.gapMs && !paused && !claiming && head.max >= running - 1;
}

import { beforeFirst, canQueue, type ActiveGroup } from "../groups/activeGroup.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { OfferedSession, QueueableSession, QueueSlot } from "../model/tasks.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { StartLimits } from "../sessions/sessionReserve.js";
import type { ClaimComponents } from "./claimComponents.js";
import { toPlan, type ClaimPlan } from "./claimPlan.js";
import { QueueCapacity } from "./queueCapacity.js";

interface QueueSlots {
  /** For each group, slots in sessions that already have tasks of the group. */
  readonly own: ReadonlyMap<ActiveGroup, readonly QueueSlot[]>;
  /** Slots for the other groups, and these groups. */
  readonly shared: readonly QueueSlot[];
  readonly sharing: readonly ActiveGroup[];
  /** Whether no more of the known tasks could be queued. */
  readonly areAll: boolean;
}

const noQueueSlots: QueueSlots = { own: new Map(), shared: [], sharing: [], areAll: false };

export interface PlanLimits {
  readonly maxTasks: number;
  readonly starts: StartLimits;
  readonly lookAhead: number;
  /** Minimum number of groups to read. Raised after a claim that found nothing because heads were outdated. */
  readonly minGroups: number;
}

type PlannedSessions = Pick<SessionPool, "offer" | "withdrawOffers" | "queueable">;

/** Decides which groups the next claim reads, and which queue slots the claim fills. */
export class ClaimPlanner {
  readonly #sessions: PlannedSessions;
  readonly #groups: ActiveGroups;
  readonly #runTimes: RunTimes;
  /** How many busy sessions get no more tasks, so that they become free for exclusive tasks. */
  reservedSessions = 0;

  constructor(components: Pick<ClaimComponents, "groups" | "runTimes"> & { readonly sessions: PlannedSessions }) {
    this.#sessions = components.sessions;
    this.#groups = components.groups;
    this.#runTimes = components.runTimes;
  }

  /** @param mayQueue whether tasks may be queued in busy sessions */
  plan(limits: PlanLimits, mayQueue = true): ClaimPlan | null {
    const { maxTasks, lookAhead } = limits;
    const reserved = this.#planReserved(limits);
    if (reserved !== null) return reserved;
    const offered = this.#sessions.offer(Math.min(maxTasks, this.#maxStarts(limits.starts)));
    if (offered.length > 0) {
      const plan = this.#planStarts(offered, limits);
      if (plan !== null) return plan;
      this.#sessions.withdrawOffers(offered);
    }
    const queued = mayQueue && maxTasks > 0 ? this.#planQueued(maxTasks) : null;
    if (queued !== null || lookAhead === 0 || offered.length > 0) return queued;
    return this.#planStarts([], limits);
  }

  #maxStarts({ all, unreserved }: StartLimits): number {
    return this.#groups.startable.needReserve ? unreserved : all;
  }

  /**
   * Plans one task for each of the best groups that run nothing, if groups that already run something would take all
   * sessions before them.
   */
  #planReserved({ maxTasks, starts }: Pick<PlanLimits, "maxTasks" | "starts">): ClaimPlan | null {
    const { idle, needReserve, passIdleOver } = this.#groups.startable;
    const count = Math.min(maxTasks, starts.reserved, idle);
    if (count <= 0 || !(passIdleOver || (needReserve && starts.unreserved <= 0))) return null;
    const offered = this.#sessions.offer(count);
    if (offered.length === 0) return null;
    const best = takeUpTo(offered.length, () => this.#groups.ranking.takeBestIdle());
    return toPlan(this.#groups, {
      offered,
      // A session that is dedicated to a group gets no task. It is closed, so that another one can be opened.
      slots: startsOf(offered),
      maxCandidates: offered.length,
      maxTasks: new Map(best.map((group) => [group, 1])),
      starts: best.length,
      usesReserve: true,
    });
  }

  /**
   * Plans one task for each free session. If all of these tasks are short, more tasks are queued behind them: tasks of
   * the same group if there is only one group, and otherwise tasks of further groups.
   */
  #planStarts(
    offered: readonly OfferedSession[],
    { maxTasks, lookAhead, minGroups }: Omit<PlanLimits, "starts">,
  ): ClaimPlan | null {
    const dedicated = offered.flatMap((session) => session.dedication ?? []);
    const taken = new Set<ActiveGroup>();
    for (const { hash } of dedicated) {
      const group = this.#groups.take(hash);
      if (group !== null) taken.add(group);
    }
    const areShared = this.#groups.shares !== null;
    const wanted = Math.max(1, offered.length, minGroups);
    const best = areShared
      ? this.#groups.ranking.takeForSessions(wanted)
      : takeUpTo(wanted, () => this.#groups.ranking.takeBest());
    for (const group of best) taken.add(group);
    if (taken.size === 0) return null;
    const starting = startsOf(offered);
    const maxQueued = maxTasks - starting.length;
    const canQueueBehind = offered.length > 0 && maxQueued > 0 && dedicated.length === 0 && minGroups === 0;
    const queue = canQueueBehind ? this.#queueBehind(offered, best, maxQueued) : noQueueSlots;
    // A group that is only counted must not get a queue slot, because its tasks may be long. If enough groups are
    // startable, each counts as one task, and the claim need not read them.
    const toCount = (): ActiveGroup | null =>
      this.#groups.startable.size < lookAhead ? this.#groups.ranking.takeBest() : null;
    const others = queue.sharing.length > 0 || areShared ? queue.sharing : takeUpTo(lookAhead, toCount);
    for (const group of others) taken.add(group);
    const maxCandidates = Math.max(offered.length + queue.shared.length + lookAhead, minGroups);
    const maxTasksOf = this.#maxTasksOf([...taken], maxCandidates);
    if (areShared) {
      for (const { hash } of dedicated) addTasks(maxTasksOf, this.#groups.get(hash), 1);
      if (queue.sharing.length === 0) addTasks(maxTasksOf, best[0], queue.shared.length);
    }
    for (const [group, slots] of queue.own) maxTasksOf.set(group, slots.length);
    return toPlan(this.#groups, {
      offered,
      slots: [...starting, ...queue.shared],
      dedicated,
      maxCandidates,
      maxTasks: maxTasksOf,
      ownSlots: queue.own,
      fillsQueues: queue.areAll,
      starts: best.length,
    });
  }

  /** Slots behind the tasks of the best groups, which start now, and in the queues of busy sessions. */
  #queueBehind(offered: readonly OfferedSession[], best: readonly ActiveGroup[], maxSlots: number): QueueSlots {
    const [group] = best;
    if (group === undefined) return noQueueSlots;
    if (best.length === 1 && this.#groups.startable.size === 0 && !hasOneStart(group))
      return this.#queueBehindOwn(offered, group, maxSlots);
    const capacity = new QueueCapacity(
      [...this.#sessions.queueable(), ...this.#expectStarts(offered, best)],
      this.#runTimes,
      this.#groups.shares,
    );
    const areShort = best.every(
      (each) =>
        !each.expectsExclusive &&
        !each.head?.gapMs &&
        capacity.isShort(each) &&
        // Otherwise, more tasks of a new group could be queued behind its first runs.
        (hasOneStart(each) || this.#runTimes.count(each.hash) > 0),
    );
    if (!areShort || this.reservedSessions > 0) return noQueueSlots;
    const queue = this.#fillQueues(capacity, best, maxSlots);
    return { ...queue, areAll: queue.areAll && (queue.sharing.length > 0 || best.every(hasOneStart)) };
  }

  /** Slots behind the tasks that start now, for more tasks of the only group. */
  #queueBehindOwn(offered: readonly OfferedSession[], group: ActiveGroup, maxSlots: number): QueueSlots {
    const capacity = new QueueCapacity(
      offered.map((session) => ({ ...session, expectedMs: 0, groups: [] })),
      this.#runTimes,
      this.#groups.shares,
    );
    if (group.expectsExclusive || !capacity.isShort(group) || this.#runTimes.count(group.hash) === 0) {
      return noQueueSlots;
    }
    const shared: QueueSlot[] = [];
    for (let taken = 0; shared.length < maxSlots; taken += 1) {
      const slot = capacity.takeAny(group.hash);
      if (slot === null) break;
      // The first slot of each session belongs to the task that starts in the session at once.
      if (taken >= offered.length) shared.push(slot);
    }
    return { ...noQueueSlots, shared };
  }

  /**
   * Plans more tasks for busy sessions, best task first. A task does not queue behind others if it is expected to be
   * exclusive or long, or if no run times are known for its group. Instead, one session is reserved for each such task:
   * the session gets no further tasks, so that it becomes free for that task.
   */
  #planQueued(maxTasks: number): ClaimPlan | null {
    const capacity = new QueueCapacity(this.#sessions.queueable(), this.#runTimes, this.#groups.shares);
    capacity.reserve(this.reservedSessions);
    if (capacity.isExhausted) return null;
    const { own, shared, sharing } = this.#fillQueues(capacity, [], maxTasks);
    const maxTasksOf = this.#maxTasksOf(sharing, shared.length);
    for (const [group, slots] of own) maxTasksOf.set(group, slots.length);
    if (maxTasksOf.size === 0) return null;
    return toPlan(this.#groups, {
      offered: [],
      slots: shared,
      maxCandidates: shared.length,
      maxTasks: maxTasksOf,
      ownSlots: own,
      fillsQueues: true,
      starts: 0,
    });
  }

  /** How many tasks of each group the claim reads: with shares, only those that are to get a session. */
  #maxTasksOf(groups: readonly ActiveGroup[], count: number): Map<ActiveGroup, number> {
    if (this.#groups.shares === null) return maxTasksOfEach(groups, count);
    return new Map(groups.map((group) => [group, group.granted]));
  }

  /** @param starting groups that the claim has taken already */
  #fillQueues(capacity: QueueCapacity, starting: readonly ActiveGroup[], maxTasks: number): QueueSlots {
    const ownGroups = this.#groupsForOwnSlots(capacity).filter((group) => !starting.includes(group));
    const own = new Map<ActiveGroup, readonly QueueSlot[]>();
    const shared: QueueSlot[] = [];
    const sharing: ActiveGroup[] = [];
    const skipped: ActiveGroup[] = [];
    let remaining = maxTasks;
    while (remaining > 0 && !capacity.isExhausted) {
      const best = this.#groups.startable.best;
      const next = ownGroups[0];
      // When a task that is queued behind one of its own group starts, one task fewer of the group is running.
      if (next !== undefined && (best === null || next === best || this.#groups.ranking.precedes(next, best, 1))) {
        ownGroups.shift();
        const slots = capacity.takeOwn(next.hash, remaining);
        if (slots.length === 0) continue;
        this.#groups.take(next.hash);
        own.set(next, slots);
        remaining -= slots.length;
        continue;
      }
      const group = this.#groups.ranking.takeBest();
      if (group === null) break;
      if (group.expectsExclusive || !capacity.isShort(group)) {
        skipped.push(group);
        capacity.reserve(1);
        continue;
      }
      const slot = capacity.takeAny(group.hash);
      if (slot === null) {
        skipped.push(group);
        break;
      }
      shared.push(slot);
      sharing.push(group);
      remaining -= 1;
    }
    for (const group of skipped) this.#groups.putBack(group);
    return { own, shared, sharing, areAll: remaining > 0 };
  }

  /** The free sessions with the work that they are about to get. */
  #expectStarts(offered: readonly OfferedSession[], best: readonly ActiveGroup[]): QueueableSession[] {
    return offered.map((session, index) => {
      const group = best[index];
      const expectedMs = group === undefined ? 0 : (this.#runTimes.expectedMs(group.hash) ?? 0);
      return { ...session, expectedMs, groups: [] };
    });
  }

  /** The groups whose tasks can queue in sessions that already have tasks of the same group, best group first. */
  #groupsForOwnSlots(capacity: QueueCapacity): ActiveGroup[] {
    const groups = capacity.groups.flatMap((hash) => {
      const group = this.#groups.get(hash);
      return group !== null && canQueue(group) && !this.#isUntried(group) ? group : [];
    });
    return groups.toSorted((a, b) => (this.#groups.ranking.precedes(a, b) ? -1 : 1));
  }

  /** Whether none of the group's runs has been measured yet, while the group limit allows another session for it. */
  #isUntried({ hash, head, running }: ActiveGroup): boolean {
    return head !== null && head.max >= running && this.#runTimes.count(hash) === 0;
  }
}

function takeUpTo(count: number, take: () => ActiveGroup | null): ActiveGroup[] {
  const groups: ActiveGroup[] = [];
  while (groups.length < count) {
    const group = take();
    if (group === null) break;
    groups.push(group);
  }
  return groups;
}

/** Slots for tasks that start at once, in the offered sessions that take tasks of any group. */
function startsOf(offered: readonly OfferedSession[]): QueueSlot[] {
  return offered.flatMap(({ owner, pid, dedication }) => (dedication === null ? { owner, pid, startsNow: true } : []));
}

/** Whether only one task of the group can start now. */
const hasOneStart = ({ head, running }: ActiveGroup): boolean => head !== null && head.max <= running;

function addTasks(tasks: Map<ActiveGroup, number>, group: ActiveGroup | null | undefined, count: number): void {
  const before = group === null || group === undefined ? undefined : tasks.get(group);
  if (group !== null && group !== undefined && before !== undefined) tasks.set(group, before + count);
}

/**
 * Returns how many tasks of each group can be among the best `count` tasks. Only heads are known. A head certainly
 * precedes the k-th task of another group if its priority exceeds the highest priority that the k-th task can have.
 */
function maxTasksOfEach(groups: readonly ActiveGroup[], count: number): Map<ActiveGroup, number> {
  const priorities = groups.map(({ head, running }) => (head?.max ?? beforeFirst.max) - running);
  const sorted = priorities.toSorted((a, b) => b - a);
  const result = new Map<ActiveGroup, number>();
  for (const [index, group] of groups.entries()) {
    const priority = priorities[index] ?? 0;
    const allowed = Math.min(priority, group.minQueuedMax - group.running) + 1;
    let tasks = 1;
    let preceding = 0;
    while (tasks < allowed) {
      while (preceding < sorted.length && (sorted[preceding] ?? 0) > priority - tasks) preceding += 1;
      // The head of the group itself is among the preceding heads.
      if (tasks + Math.max(0, preceding - 1) >= count) break;
      tasks += 1;
    }
    result.set(group, tasks);
  }
  return result;
}

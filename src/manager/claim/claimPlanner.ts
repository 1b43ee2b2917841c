import { groupPrecedes, type ActiveGroup, type ActiveGroups } from "../groups/groups.js";
import { canQueue, type Head } from "../groups/groupLimit.js";
import { QueueCapacity } from "./queueCapacity.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { ClaimedGroup, ClaimRequest } from "./claimFull.sql.js";
import type { DedicatedSession, OfferedSession, QueueSlot } from "../model.js";

/** A position before every task of a group. */
const start: Head = { max: 2_147_483_647, id: -(2n ** 63n) };

/** A claim to send, with the sessions and groups for which it was planned. */
export interface ClaimPlan extends Omit<ClaimRequest, "except" | "contended" | "runningKeys" | "traced"> {
  readonly offered: readonly OfferedSession[];
  readonly planned: readonly { readonly group: ActiveGroup; readonly maxTasks: number }[];
}

export interface PlanLimits {
  /** Maximum number of tasks. */
  readonly maxTasks: number;
  /** How many more sessions can become busy. */
  readonly maxStarts: number;
  /** How many startable tasks to count beyond the tasks that get a session. */
  readonly lookAhead: number;
  /**
   * Minimum number of groups to read. It is raised after a claim that found nothing because the heads (first due tasks)
   * of its groups were outdated.
   */
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

  constructor({
    sessions,
    groups,
    runTimes,
  }: {
    readonly sessions: PlannedSessions;
    readonly groups: ActiveGroups;
    readonly runTimes: RunTimes;
  }) {
    this.#sessions = sessions;
    this.#groups = groups;
    this.#runTimes = runTimes;
  }

  plan(limits: PlanLimits): ClaimPlan | null {
    const { maxTasks, maxStarts, lookAhead } = limits;
    const offered = this.#sessions.offer(Math.min(maxTasks, maxStarts));
    if (offered.length > 0) {
      const plan = this.#planStarts(offered, limits);
      if (plan !== null) return plan;
      this.#sessions.withdrawOffers(offered);
    }
    const queued = maxTasks > 0 ? this.#planQueued(maxTasks) : null;
    if (queued !== null || lookAhead === 0 || offered.length > 0) return queued;
    return this.#planStarts([], limits);
  }

  /** Plans a claim of only one task. If the server rejects such a claim, the rejected task is known. */
  planSingle(maxStarts: number): ClaimPlan | null {
    const offered = this.#sessions.offer(Math.min(1, maxStarts));
    const limits = { maxTasks: 1, lookAhead: 0, minGroups: 0 };
    const plan = offered.length > 0 ? this.#planStarts(offered, limits) : null;
    if (plan === null) this.#sessions.withdrawOffers(offered);
    return plan;
  }

  /**
   * Plans one task for each free session. If all of these tasks are short and of one group, more tasks of the group are
   * queued behind them.
   */
  #planStarts(
    offered: readonly OfferedSession[],
    { maxTasks, lookAhead, minGroups }: Omit<PlanLimits, "maxStarts">,
  ): ClaimPlan | null {
    const dedicated = offered.flatMap((session) => session.dedication ?? []);
    const taken = new Set<ActiveGroup>();
    for (const { hash } of dedicated) {
      const group = this.#groups.take(hash);
      if (group !== null) taken.add(group);
    }
    const best = this.#takeBestGroups(offered.length, lookAhead, minGroups);
    for (const group of best) taken.add(group);
    if (taken.size === 0) return null;
    const starting = offered.flatMap(({ owner, pid, dedication }) =>
      dedication === null ? { owner, pid, startsNow: true } : [],
    );
    const maxQueued = maxTasks - starting.length;
    const queued = dedicated.length > 0 ? [] : this.#slotsBehind(offered, best, maxQueued);
    const maxCandidates = Math.max(offered.length + queued.length + lookAhead, minGroups);
    return toPlan(this.#groups, {
      offered,
      slots: [...starting, ...queued],
      dedicated,
      maxCandidates,
      maxTasks: maxTasksOfEach([...taken], maxCandidates),
    });
  }

  #takeBestGroups(sessions: number, lookAhead: number, minGroups: number): ActiveGroup[] {
    const groups: ActiveGroup[] = [];
    const enough = Math.max(1, sessions, minGroups);
    while (groups.length < Math.max(sessions + lookAhead, minGroups)) {
      const group = this.#groups.takeBest();
      if (group === null) break;
      groups.push(group);
      // The remaining groups are only counted, so the claim need not read them.
      if (groups.length >= enough && this.#groups.startable >= lookAhead) break;
    }
    return groups;
  }

  /**
   * Returns slots behind the tasks that start now. Returns none if tasks of several groups are claimed, if the runs of
   * the only group are not known to be short, or if its tasks are expected to be exclusive.
   */
  #slotsBehind(offered: readonly OfferedSession[], groups: readonly ActiveGroup[], maxSlots: number): QueueSlot[] {
    const [group] = groups;
    const sessions = offered.map((session) => ({ ...session, expectedMs: 0, groups: [] }));
    const capacity = new QueueCapacity(sessions, this.#runTimes);
    if (group === undefined || groups.length > 1 || group.expectsExclusive) return [];
    if (!capacity.isShort(group) || this.#runTimes.count(group.hash) === 0) return [];
    const slots: QueueSlot[] = [];
    for (let taken = 0; slots.length < maxSlots; taken += 1) {
      const slot = capacity.takeAny(group.hash);
      if (slot === null) break;
      // The first slot of each session belongs to the task that starts in the session at once.
      if (taken >= offered.length) slots.push(slot);
    }
    return slots;
  }

  /**
   * Plans more tasks for busy sessions, best task first. A task does not queue behind others if it is expected to be
   * exclusive or long, or if no run times are known for its group. Instead, one session is reserved for each such task:
   * the session gets no further tasks, so that it becomes free for that task.
   */
  #planQueued(maxTasks: number): ClaimPlan | null {
    const capacity = new QueueCapacity(this.#sessions.queueable(), this.#runTimes);
    capacity.reserve(this.reservedSessions);
    if (capacity.isExhausted) return null;
    const ownGroups = this.#groupsForOwnSlots(capacity);
    const maxTasksOf = new Map<ActiveGroup, number>();
    const ownSlots = new Map<ActiveGroup, readonly QueueSlot[]>();
    const sharedSlots: QueueSlot[] = [];
    const sharing: ActiveGroup[] = [];
    const skipped: ActiveGroup[] = [];
    let remaining = maxTasks;
    while (remaining > 0 && !capacity.isExhausted) {
      const best = this.#groups.best;
      const own = ownGroups[0];
      if (own !== undefined && (best === null || own === best || precedesOnceDone(own, best))) {
        ownGroups.shift();
        const slots = capacity.takeOwn(own.hash, remaining);
        if (slots.length === 0) continue;
        this.#groups.take(own.hash);
        maxTasksOf.set(own, slots.length);
        ownSlots.set(own, slots);
        remaining -= slots.length;
        continue;
      }
      const group = this.#groups.takeBest();
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
      sharedSlots.push(slot);
      sharing.push(group);
      remaining -= 1;
    }
    for (const group of skipped) this.#groups.putBack(group);
    for (const [group, count] of maxTasksOfEach(sharing, sharedSlots.length)) maxTasksOf.set(group, count);
    if (maxTasksOf.size === 0) return null;
    return toPlan(this.#groups, {
      offered: [],
      slots: sharedSlots,
      dedicated: [],
      maxCandidates: sharedSlots.length,
      maxTasks: maxTasksOf,
      ownSlots,
    });
  }

  /**
   * Returns the groups whose tasks can queue in sessions that already have tasks of the same group, best group first.
   */
  #groupsForOwnSlots(capacity: QueueCapacity): ActiveGroup[] {
    const groups = capacity.groups.flatMap((hash) => {
      const group = this.#groups.get(hash);
      return group !== null && canQueue(group) && !this.#isUntried(group) ? group : [];
    });
    return groups.toSorted((a, b) => (groupPrecedes(a, b, 0) ? -1 : 1));
  }

  /**
   * Returns whether none of the group's runs has been measured yet, while the group limit allows another session for
   * the group.
   */
  #isUntried({ hash, head, running }: ActiveGroup): boolean {
    return head !== null && head.max >= running && this.#runTimes.count(hash) === 0;
  }
}

function toPlan(
  active: ActiveGroups,
  {
    maxTasks,
    ownSlots,
    ...plan
  }: {
    readonly offered: readonly OfferedSession[];
    readonly slots: readonly QueueSlot[];
    readonly dedicated: readonly DedicatedSession[];
    readonly maxCandidates: number;
    readonly maxTasks: ReadonlyMap<ActiveGroup, number>;
    readonly ownSlots?: ReadonlyMap<ActiveGroup, readonly QueueSlot[]>;
  },
): ClaimPlan {
  const planned = [...maxTasks].map(([group, count]) => ({ group, maxTasks: count }));
  const groups = planned.map(({ group, maxTasks: count }): ClaimedGroup => {
    const { max, id } = group.head ?? start;
    const { hash, running } = group;
    return {
      hash,
      running,
      quietMs: active.quietMs(group),
      max,
      id,
      maxTasks: count,
      ownSlots: ownSlots?.get(group) ?? null,
    };
  });
  return { ...plan, planned, groups };
}

export function withoutGroups(plan: ClaimPlan, hashes: ReadonlySet<number>): ClaimPlan {
  return {
    ...plan,
    groups: plan.groups.filter(({ hash }) => !hashes.has(hash)),
    planned: plan.planned.filter(({ group }) => !hashes.has(group.hash)),
    dedicated: plan.dedicated.filter(({ hash }) => !hashes.has(hash)),
    // Sessions dedicated to one of these groups are left out, because a claim closes offered dedicated sessions that
    // get no task.
    offered: plan.offered.filter(({ dedication }) => dedication === null || !hashes.has(dedication.hash)),
  };
}

/**
 * Returns whether the head (first due task) of group `own` comes before the head of group `other`. The head of `own` is
 * to be queued behind a task of its own group. When the head starts, that task has ended, so one task fewer of the
 * group is running.
 */
const precedesOnceDone = (own: ActiveGroup, other: ActiveGroup): boolean => groupPrecedes(own, other, 1);

/**
 * Returns how many tasks of each group can be among the best `count` tasks. Only the head (first due task) of each
 * group is known. The priority of a task is its `max` minus the number of running tasks of its group. A head certainly
 * precedes the k-th task of another group if the head's priority exceeds the highest priority that the k-th task can
 * have.
 */
function maxTasksOfEach(groups: readonly ActiveGroup[], count: number): Map<ActiveGroup, number> {
  const priorities = groups.map(({ head, running }) => (head?.max ?? start.max) - running);
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

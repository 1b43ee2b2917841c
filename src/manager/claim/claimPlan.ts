import { beforeFirst, canQueue, headPrecedes, type ActiveGroup, type Head } from "../groups/activeGroup.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { DueTask, OfferedSession, QueueSlot } from "../model/tasks.js";
import type { ClaimConditions, ClaimRequest, ClaimResult } from "./claimFull.sql.js";

export interface ClaimPlan extends Omit<ClaimRequest, keyof ClaimConditions> {
  readonly offered: readonly OfferedSession[];
  readonly planned: readonly { readonly group: ActiveGroup; readonly maxTasks: number }[];
  /** Whether the claim gives slots to all tasks that are known and can be queued, as far as there are free slots. */
  readonly fillsQueues: boolean;
  /** If the claim fills the queues: how many tasks it starts at once, provided that all these tasks are still due. */
  readonly starts: number;
  /** Whether the claim gives sessions to groups before their turn, because they run nothing. */
  readonly usesReserve: boolean;
}

/** Makes a plan. It queues nothing and uses neither dedicated sessions nor the reserve unless `plan` says otherwise. */
export function toPlan(
  active: ActiveGroups,
  {
    maxTasks,
    ownSlots = new Map(),
    ...plan
  }: Pick<ClaimPlan, "offered" | "slots" | "maxCandidates" | "starts"> &
    Partial<Pick<ClaimPlan, "dedicated" | "fillsQueues" | "usesReserve">> & {
      readonly maxTasks: ReadonlyMap<ActiveGroup, number>;
      readonly ownSlots?: ReadonlyMap<ActiveGroup, readonly QueueSlot[]>;
    },
): ClaimPlan {
  const planned = [...maxTasks].map(([group, count]) => ({ group, maxTasks: count }));
  const groups = planned.map(({ group, maxTasks: count }) => {
    const { max, id } = group.head ?? beforeFirst;
    const { hash, running } = group;
    const own = ownSlots.get(group) ?? null;
    return { hash, running, quietMs: active.gaps.quietMs(group), max, id, maxTasks: count, ownSlots: own };
  });
  return { dedicated: [], fillsQueues: false, usesReserve: false, ...plan, planned, groups };
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

/** Sets the next head of each group of a claim. A group that was read to its end has none. */
export function updateHeads(groups: ActiveGroups, { planned }: ClaimPlan, result: ClaimResult): void {
  const heads = new Map(result.heads.map((head) => [head.hash, head]));
  const read = new Map<number, DueTask[]>();
  for (const task of [...result.claimed, ...result.locked, ...result.late]) {
    const tasks = read.get(task.hash);
    if (tasks === undefined) read.set(task.hash, [task]);
    else tasks.push(task);
  }
  for (const { group, maxTasks } of planned) {
    const next = heads.get(group.hash);
    group.expectsExclusive = next?.exclusive ?? false;
    const tasks = read.get(group.hash) ?? [];
    if (next !== undefined) groups.setHead(group.hash, { ...position(next), gapMs: next.gapMs }, next.paused);
    else groups.setHead(group.hash, tasks.length > maxTasks ? lastOf(tasks) : null, false);
  }
}

export const position = ({ max, id }: DueTask): Head => ({ max, id: BigInt(id) });

const lastOf = (tasks: readonly DueTask[]): Head =>
  tasks.map(position).reduce((last, head) => (headPrecedes(last, head) ? head : last));

/**
 * Whether another claim would hardly find free queue slots. The first claim that fills the queues may start tasks behind
 * which others of their groups can wait.
 *
 * @param request.hasFilled whether an earlier claim of the cycle has filled the queues
 */
export function areQueuesFull(
  { offered, planned, fillsQueues, starts }: ClaimPlan,
  { claimed }: ClaimResult,
  { maxTasks, hasFilled }: { readonly maxTasks: number; readonly hasFilled: boolean },
): boolean {
  if (!fillsQueues || claimed.length >= maxTasks) return false;
  if (claimed.filter(({ startsNow }) => startsNow).length < starts) return false;
  return offered.length === 0 || hasFilled || !planned.some(({ group }) => canQueue(group));
}

import { noLoad, type GroupLoad } from "../groups/activeGroup.js";
import type { ClaimedTask } from "../model/tasks.js";
import type { PooledSession } from "./session.js";
import type { SessionRegistry } from "./sessionRegistry.js";

export interface SessionPoolLoad {
  readonly busy: number;
  readonly groups: ReadonlyMap<number, GroupLoad>;
  /** The tasks that run. */
  readonly current: readonly ClaimedTask[];
  readonly keys: readonly string[];
  /** Pids of the backends of sessions that are free and not dedicated to a group. */
  readonly free: readonly number[];
  /** Those of sessions that have tasks, but not a current task that must be alone in its queue. */
  readonly working: readonly number[];
  /** The number of sessions in each state, and the number blocked for each reason. */
  readonly states: Readonly<Record<string, number>>;
}

/** Reads the load from the queues themselves, so that the manager's counters can be checked against the load. */
export function readLoad(registry: SessionRegistry): SessionPoolLoad {
  const sessions = [...registry];
  const count = (isCounted: (session: PooledSession) => boolean): number => sessions.filter(isCounted).length;
  const pidsOf = (isListed: (session: PooledSession) => boolean): number[] =>
    sessions.flatMap((session) => (session.backend !== null && isListed(session) ? session.backend.pid : []));
  return {
    busy: count(({ queue }) => queue.size > 0),
    groups: readGroups(sessions),
    current: sessions.flatMap(({ queue }) => queue.current?.task ?? []),
    keys: sessions.flatMap(({ queue }) => queue.all.flatMap(({ task }) => task.key ?? [])),
    free: pidsOf(({ state, dedication }) => state === "free" && dedication === null),
    working: pidsOf(({ queue, recalledRuns }) => queue.current?.task.exclusive === false || recalledRuns.size > 0),
    states: {
      ...registry.counts,
      slow: count(({ slow }) => slow),
      recalling: count(({ pendingRecalls }) => pendingRecalls > 0),
      recalled: count(({ recalledRuns }) => recalledRuns.size > 0),
    },
  };
}

function readGroups(sessions: readonly PooledSession[]): Map<number, GroupLoad> {
  const groups = new Map<number, GroupLoad>();
  const add = (hash: number, change: (load: GroupLoad) => Partial<GroupLoad>): void => {
    const load = groups.get(hash) ?? noLoad;
    groups.set(hash, { ...load, ...change(load) });
  };
  for (const { queue } of sessions) {
    for (const hash of queue.groups) add(hash, (load) => ({ sessions: load.sessions + 1 }));
    for (const { task, isStartUnknown } of queue.all) {
      if (isStartUnknown) add(task.hash, (load) => ({ starting: load.starting + 1 }));
    }
    for (const { task } of queue.queued) {
      add(task.hash, (load) => ({
        queuedTasks: load.queuedTasks + 1,
        minQueuedMax: Math.min(load.minQueuedMax, task.max),
      }));
    }
  }
  return groups;
}

import type { ActiveGroups } from "../groups/groups.js";
import type { ClaimedTask, OwnedTask } from "../model/tasks.js";
import type { SessionRegistry } from "./sessionRegistry.js";
import { canMove } from "./slowRunMonitor.js";

/** Lists the tasks in the queues of all sessions. */
export class PoolTasks {
  readonly #registry: SessionRegistry;
  readonly #groups: ActiveGroups;

  constructor(registry: SessionRegistry, groups: ActiveGroups) {
    this.#registry = registry;
    this.#groups = groups;
  }

  get count(): number {
    return this.#registry.taskCount;
  }

  /** Whether the task is in the queue of the session with this owner. */
  has({ id, owner }: OwnedTask): boolean {
    return this.#registry.ofTask(id)?.backend?.owner === owner;
  }

  current(): OwnedTask[] {
    return [...this.#registry].flatMap(({ queue: { current }, backend }) =>
      backend === null || current === null ? [] : [{ id: current.task.id, owner: backend.owner }],
    );
  }

  /**
   * Returns one task of each session from which a result is expected: the current task or, if there is none, a recalled
   * one.
   */
  awaited(): OwnedTask[] {
    return [...this.#registry].flatMap(({ queue, recalledRuns, backend }) => {
      const [recalled] = recalledRuns;
      const id = queue.current?.task.id ?? recalled;
      return backend === null || id === undefined ? [] : [{ id, owner: backend.owner }];
    });
  }

  /**
   * Returns the tasks that have been queued behind others for at least `minMs`, except those that are being recalled.
   */
  queued(minMs: number): ClaimedTask[] {
    const latest = performance.now() - minMs;
    return [...this.#registry].flatMap(({ queue }) =>
      queue.queued.flatMap(({ isRecalling, assignedAt, task }) => (isRecalling || assignedAt > latest ? [] : [task])),
    );
  }

  /** Returns how many queued tasks could run in other sessions; stops counting at `max`. */
  countMovable(max: number): number {
    let count = 0;
    for (const { queue } of this.#registry) {
      const { current, queued } = queue;
      for (const { task } of current === null ? [] : queued) {
        if (count >= max) return count;
        if (current !== null && canMove(task, current.task, this.#groups)) count += 1;
      }
    }
    return count;
  }
}

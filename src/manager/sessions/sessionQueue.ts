import type { ClaimedTask } from "../model/tasks.js";

export interface QueuedTask {
  readonly task: ClaimedTask;
  /** Whether the end of the task is expected to change nothing but its own row. */
  hasPlainEnd: boolean;
  readonly expectedMs: number;
  /** Whether the task's row is already in state WORK and has its start time. */
  isStartWritten: boolean;
  /** Whether the session still has to report the start of the task, because the task has a gap. */
  isStartUnknown: boolean;
  /** When the task was assigned, and when it should begin at the latest, on the process's clock, in ms. */
  readonly assignedAt: number;
  readonly expectedAt: number;
  /** Whether nothing may be queued behind the task any more. */
  isSlow: boolean;
  isRecalling: boolean;
}

/** The tasks of one session, in order: the current task, which runs, and those queued behind it. */
export class SessionQueue {
  readonly #tasks: QueuedTask[] = [];
  readonly #groups = new Map<number, number>();
  #expectedMs = 0;
  /** When the current task came to the front of the queue, on the process's clock, in ms. */
  #currentSince = 0;

  get size(): number {
    return this.#tasks.length;
  }

  get current(): QueuedTask | null {
    return this.#tasks[0] ?? null;
  }

  get all(): readonly QueuedTask[] {
    return this.#tasks;
  }

  get queued(): readonly QueuedTask[] {
    return this.#tasks.slice(1);
  }

  get groups(): Iterable<number> {
    return this.#groups.keys();
  }

  get expectedMs(): number {
    return this.#expectedMs;
  }

  /** How long ago the current task came to the front of the queue, in ms. */
  get currentMs(): number {
    return performance.now() - this.#currentSince;
  }

  /** Adds a task. Returns whether it is the only one of its group here. */
  add(queued: QueuedTask): boolean {
    if (this.#tasks.length === 0) this.#currentSince = performance.now();
    this.#tasks.push(queued);
    this.#expectedMs += queued.expectedMs;
    const { hash } = queued.task;
    const others = this.#groups.get(hash) ?? 0;
    this.#groups.set(hash, others + 1);
    return others === 0;
  }

  remove(id: string): { queued: QueuedTask; wasCurrent: boolean; wasLastOfGroup: boolean } | null {
    const index = this.#tasks.findIndex(({ task }) => task.id === id);
    const queued = this.#tasks[index];
    if (queued === undefined) return null;
    if (index > 0) this.#tasks.splice(index, 1);
    else {
      this.#tasks.shift();
      this.#currentSince = performance.now();
    }
    this.#expectedMs = this.#tasks.length === 0 ? 0 : this.#expectedMs - queued.expectedMs;
    const { hash } = queued.task;
    const others = (this.#groups.get(hash) ?? 0) - 1;
    if (others > 0) this.#groups.set(hash, others);
    else this.#groups.delete(hash);
    return { queued, wasCurrent: index === 0, wasLastOfGroup: others <= 0 };
  }
}

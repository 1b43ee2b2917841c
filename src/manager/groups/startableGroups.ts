import { IndexedHeap } from "../../shared/indexedHeap.js";
import type { ActiveGroup } from "./activeGroup.js";

/** The groups that can start a task, in their order. */
export interface Startable {
  readonly size: number;
  readonly best: ActiveGroup | null;
  /** How many groups or, with shares, how many shares can get a reserved session before their turn. */
  readonly idle: number;
  /** Whether sessions have to be reserved for others. */
  readonly needReserve: boolean;
  /** Whether a group that runs something comes before all that run nothing. */
  readonly passIdleOver: boolean;
  put(group: ActiveGroup): void;
  remove(group: ActiveGroup): void;
  take(): ActiveGroup | null;
  takeIdle(): ActiveGroup | null;
}

/**
 * The groups that can start a task, in order of priority. Those that run nothing (idle) have a heap of their own,
 * because they can get a reserved session before their turn.
 */
export class StartableGroups implements Startable {
  readonly #idle: IndexedHeap<ActiveGroup>;
  readonly #working: IndexedHeap<ActiveGroup>;
  readonly #precedes: (a: ActiveGroup, b: ActiveGroup) => boolean;

  constructor(precedes: (a: ActiveGroup, b: ActiveGroup) => boolean) {
    this.#precedes = precedes;
    this.#idle = new IndexedHeap(precedes);
    this.#working = new IndexedHeap(precedes);
  }

  get size(): number {
    return this.#idle.size + this.#working.size;
  }

  get best(): ActiveGroup | null {
    return this.#bestHeap.best;
  }

  get idle(): number {
    return this.#idle.size;
  }

  /**
   * Whether a group could take one more session than its first, so that sessions have to be reserved for the others.
   * The best idle group is the one with the largest `max`.
   */
  get needReserve(): boolean {
    return this.#working.size > 0 || (this.#idle.best?.head?.max ?? 0) > 0;
  }

  get passIdleOver(): boolean {
    return this.#idle.size > 0 && this.#bestHeap === this.#working;
  }

  put(group: ActiveGroup): void {
    const isIdle = group.running === 0;
    if (group.isRankedIdle !== isIdle) {
      this.remove(group);
      group.isRankedIdle = isIdle;
    }
    (isIdle ? this.#idle : this.#working).put(group);
  }

  remove(group: ActiveGroup): void {
    (group.isRankedIdle ? this.#idle : this.#working).remove(group);
  }

  take(): ActiveGroup | null {
    return this.#bestHeap.take();
  }

  takeIdle(): ActiveGroup | null {
    return this.#idle.take();
  }

  get #bestHeap(): IndexedHeap<ActiveGroup> {
    const { best: idle } = this.#idle;
    const { best: working } = this.#working;
    return working !== null && (idle === null || this.#precedes(working, idle)) ? this.#working : this.#idle;
  }
}

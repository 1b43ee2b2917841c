import type { ClaimedTask } from "../claim/claimedTask.sql.js";

/** A task that a session has. */
export interface QueuedTask {
  readonly id: string;
  readonly hash: number;
  readonly max: number;
  /** Whether nothing may wait behind it. */
  readonly alone: boolean;
  /** Whether its group may pause after it. */
  readonly pauses: boolean;
  /** Whether its end changes nothing but its own row, as far as one can tell. */
  plain: boolean;
  /** How long it will take, as far as one can tell, in ms. */
  readonly expectedMs: number;
  /** Whether its row says that it runs, and since when. */
  shown: boolean;
  /** When it was given to the session, and when it is expected to begin at the latest, on the process's clock, in ms. */
  readonly sinceMs: number;
  readonly dueMs: number;
  /** Whether it has run for so long that nothing may wait behind it. */
  slow: boolean;
  /** Whether it has been called back, and is not known to have begun. */
  recalled: boolean;
  /** As it was claimed. */
  readonly task: ClaimedTask;
}

/** What one session has to do, in order: the front runs, the others wait behind it. */
export class SessionQueue {
  readonly #held: QueuedTask[] = [];
  /** How many there are of each group. */
  readonly #groups = new Map<number, number>();
  #expectedMs = 0;
  /** When the front came to be it, on the process's clock, in ms. */
  #frontSince = 0;

  get size(): number {
    return this.#held.length;
  }

  get current(): QueuedTask | null {
    return this.#held[0] ?? null;
  }

  get all(): readonly QueuedTask[] {
    return this.#held;
  }

  /** What has not begun, as far as is known. */
  get waiting(): readonly QueuedTask[] {
    return this.#held.slice(1);
  }

  /** Of which groups there are tasks. */
  get groups(): Iterable<number> {
    return this.#groups.keys();
  }

  /** How long it will take until all have come out, as far as one can tell, in ms. */
  get expectedMs(): number {
    return this.#expectedMs;
  }

  /** How long the front has been it, in ms. */
  get frontMs(): number {
    return performance.now() - this.#frontSince;
  }

  /** @returns whether it is the first of its group here. */
  add(held: QueuedTask): boolean {
    if (this.#held.length === 0) this.#frontSince = performance.now();
    this.#held.push(held);
    this.#expectedMs += held.expectedMs;
    const others = this.#groups.get(held.hash) ?? 0;
    this.#groups.set(held.hash, others + 1);
    return others === 0;
  }

  /** Takes a task out; null when it is not here. */
  remove(id: string): { held: QueuedTask; front: boolean; lastOfGroup: boolean } | null {
    const place = this.#held.findIndex((each) => each.id === id);
    const held = this.#held[place];
    if (held === undefined) return null;
    if (place > 0) this.#held.splice(place, 1);
    else {
      this.#held.shift();
      this.#frontSince = performance.now();
    }
    this.#expectedMs = this.#held.length === 0 ? 0 : this.#expectedMs - held.expectedMs;
    const others = (this.#groups.get(held.hash) ?? 0) - 1;
    if (others > 0) this.#groups.set(held.hash, others);
    else this.#groups.delete(held.hash);
    return { held, front: place === 0, lastOfGroup: others <= 0 };
  }
}

/** What stands in a ranking: it keeps its own place, so that it can be moved or taken out. */
export interface Ranked {
  /** Where it stands, -1 when it does not; the ranking's own. */
  rank: number;
}

/** Gives the best first: a binary heap, in which each step costs the logarithm of how many there are. */
export class IndexedHeap<T extends Ranked> {
  readonly #heap: T[] = [];
  readonly #before: (a: T, b: T) => boolean;

  /** @param before whether `a` comes first. */
  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.#heap.length;
  }

  get best(): T | null {
    return this.#heap[0] ?? null;
  }

  /** Puts it where it belongs by now, whether it stood here before or not. */
  put(item: T): void {
    if (item.rank < 0) {
      item.rank = this.#heap.length;
      this.#heap.push(item);
    }
    this.#settle(item);
  }

  remove(item: T): void {
    if (item.rank < 0) return;
    const last = this.#heap.pop();
    if (last !== undefined && last !== item) {
      this.#place(last, item.rank);
      item.rank = -1;
      this.#settle(last);
    } else item.rank = -1;
  }

  /** Takes out the best. */
  take(): T | null {
    const best = this.#heap[0];
    if (best === undefined) return null;
    this.remove(best);
    return best;
  }

  #settle(item: T): void {
    this.#rise(item);
    this.#sink(item);
  }

  #rise(item: T): void {
    while (item.rank > 0) {
      const above = this.#heap[(item.rank - 1) >> 1]!;
      if (!this.#before(item, above)) return;
      this.#swap(item, above);
    }
  }

  #sink(item: T): void {
    for (;;) {
      const left = this.#heap[2 * item.rank + 1];
      const right = this.#heap[2 * item.rank + 2];
      if (left === undefined) return;
      const below = right !== undefined && this.#before(right, left) ? right : left;
      if (!this.#before(below, item)) return;
      this.#swap(below, item);
    }
  }

  #swap(a: T, b: T): void {
    const rank = a.rank;
    this.#place(a, b.rank);
    this.#place(b, rank);
  }

  #place(item: T, rank: number): void {
    this.#heap[rank] = item;
    item.rank = rank;
  }
}

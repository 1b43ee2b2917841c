/** An item that stores its own position, so that it can be moved or removed. */
export interface HeapItem {
  /** -1 while it is in no heap. Only the heap writes it. */
  heapIndex: number;
}

export class IndexedHeap<T extends HeapItem> {
  readonly #items: T[] = [];
  readonly #precedes: (a: T, b: T) => boolean;

  constructor(precedes: (a: T, b: T) => boolean) {
    this.#precedes = precedes;
  }

  get size(): number {
    return this.#items.length;
  }

  get best(): T | null {
    return this.#items[0] ?? null;
  }

  /** Adds the item, or moves it to where its new order requires. */
  put(item: T): void {
    if (item.heapIndex < 0) {
      item.heapIndex = this.#items.length;
      this.#items.push(item);
    }
    this.#restore(item);
  }

  remove(item: T): void {
    if (item.heapIndex < 0) return;
    const last = this.#items.pop();
    if (last !== undefined && last !== item) {
      this.#place(last, item.heapIndex);
      item.heapIndex = -1;
      this.#restore(last);
    } else item.heapIndex = -1;
  }

  take(): T | null {
    const best = this.#items[0];
    if (best === undefined) return null;
    this.remove(best);
    return best;
  }

  #restore(item: T): void {
    this.#siftUp(item);
    this.#siftDown(item);
  }

  #siftUp(item: T): void {
    while (item.heapIndex > 0) {
      const parent = this.#items[(item.heapIndex - 1) >> 1]!;
      if (!this.#precedes(item, parent)) return;
      this.#swap(item, parent);
    }
  }

  #siftDown(item: T): void {
    for (;;) {
      const left = this.#items[2 * item.heapIndex + 1];
      const right = this.#items[2 * item.heapIndex + 2];
      if (left === undefined) return;
      const child = right !== undefined && this.#precedes(right, left) ? right : left;
      if (!this.#precedes(child, item)) return;
      this.#swap(child, item);
    }
  }

  #swap(a: T, b: T): void {
    const index = a.heapIndex;
    this.#place(a, b.heapIndex);
    this.#place(b, index);
  }

  #place(item: T, index: number): void {
    this.#items[index] = item;
    item.heapIndex = index;
  }
}

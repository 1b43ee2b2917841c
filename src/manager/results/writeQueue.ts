interface Deferred<Item> {
  readonly item: Item;
  /** When writing may be tried again, on the process's clock. 0 means at the next `requeueDeferred`. */
  readonly until: number;
  /** Whether the server rejected the item for a reason that is not transient. Then nothing waits for the item. */
  readonly rejected: boolean;
}

/**
 * Items that are each to be written to a row.
 *
 *   add ──▶ queued ──take──▶ being written ──▶ written
 *           ▲ │  ▲                │ │
 *           │ │  └────requeue─────┘ └─defer──▶ deferred ──requeueDeferred──▶ queued
 *           └─┘ requeueLast: behind all others
 */
export class WriteQueue<Item> {
  #queued: Item[] = [];
  /** Items that are written after all others. Nothing waits for them, because the server may well reject some of them. */
  readonly #last: Item[] = [];
  #deferred: Deferred<Item>[] = [];

  /** What can be written now, except what comes last. */
  get queued(): readonly Item[] {
    return this.#queued;
  }

  get count(): number {
    return this.#queued.length + this.#last.length;
  }

  /** How many items wait for `requeueDeferred`, except rejected ones. */
  get deferredCount(): number {
    return this.#deferred.length - this.rejectedCount;
  }

  get rejectedCount(): number {
    return this.#deferred.filter(({ rejected }) => rejected).length;
  }

  /** When the next rejected item may be tried again, on the process's clock. Infinity if there is none. */
  get rejectedUntil(): number {
    return Math.min(...this.#deferred.flatMap(({ rejected, until }) => (rejected ? until : [])));
  }

  get all(): Item[] {
    return [...this.#queued, ...this.#last, ...this.#deferred.map(({ item }) => item)];
  }

  get unrejected(): Item[] {
    const deferred = this.#deferred.flatMap(({ item, rejected }) => (rejected ? [] : item));
    return [...this.#queued, ...this.#last, ...deferred];
  }

  some(matches: (item: Item) => boolean): boolean {
    return this.#queued.some(matches) || this.#last.some(matches) || this.#deferred.some(({ item }) => matches(item));
  }

  add(item: Item): void {
    this.#queued.push(item);
  }

  take(count = Infinity): Item[] {
    let seen = 0;
    return this.takeWhile(() => (seen += 1) <= count);
  }

  takeWhile(fits: (item: Item) => boolean): Item[] {
    const taken = takeWhile(this.#queued, fits);
    return this.#last.length === 0 ? taken : [...taken, ...takeWhile(this.#last, fits)];
  }

  takeAll(): Item[] {
    const deferred = this.#deferred.splice(0).map(({ item }) => item);
    return [...deferred, ...this.#queued.splice(0), ...this.#last.splice(0)];
  }

  requeue(items: readonly Item[]): void {
    if (items.length > 0) this.#queued = [...items, ...this.#queued];
  }

  /** Puts items last that the server may reject, so that they delay neither other items nor claims. */
  requeueLast(items: readonly Item[]): void {
    this.#last.push(...items);
  }

  /** Keeps items that cannot be written now. The parameters `until` and `rejected` are those of `Deferred`. */
  defer(items: readonly Item[], until = 0, rejected = false): void {
    for (const item of items) this.#deferred.push({ item, until, rejected });
  }

  /** Requeues the items that may be tried again at `now`. Those with a time may be rejected again, so they come last. */
  requeueDeferred(now = performance.now()): void {
    const due = this.#deferred.filter(({ until }) => until <= now);
    if (due.length === 0) return;
    this.#deferred = this.#deferred.filter(({ until }) => until > now);
    this.requeue(due.flatMap(({ item, until }) => (until > 0 ? [] : item)));
    this.requeueLast(due.flatMap(({ item, until }) => (until > 0 ? item : [])));
  }
}

function takeWhile<Item>(items: Item[], fits: (item: Item) => boolean): Item[] {
  const end = items.findIndex((item) => !fits(item));
  return items.splice(0, end < 0 ? items.length : end);
}

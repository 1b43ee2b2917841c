/**
 * A queue of items that are each to be written once. Items that cannot be written now are set aside until
 * `requeueDeferred` is called.
 */
export class RetryQueue<Item> {
  #queued: Item[] = [];
  readonly #deferred: Item[] = [];

  get isEmpty(): boolean {
    return this.#queued.length === 0;
  }

  get deferredCount(): number {
    return this.#deferred.length;
  }

  add(item: Item): void {
    this.#queued.push(item);
  }

  /** Removes and returns all queued items. */
  takeAll(): Item[] {
    return this.#queued.splice(0);
  }

  defer(items: readonly Item[]): void {
    this.#deferred.push(...items);
  }

  /** Puts the items that were set aside back at the front of the queue. */
  requeueDeferred(): void {
    this.#queued = [...this.#deferred.splice(0), ...this.#queued];
  }
}

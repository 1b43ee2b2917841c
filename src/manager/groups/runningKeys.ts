/** The keys of the tasks that run or are queued in a session. No other task with one of these keys may start. */
export class RunningKeys {
  readonly #counts = new Map<string, number>();
  #ended = new Set<string>();

  get all(): string[] {
    return [...this.#counts.keys()];
  }

  add(key: string | null): void {
    if (key !== null) this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  remove(key: string | null): void {
    if (key === null) return;
    const count = (this.#counts.get(key) ?? 0) - 1;
    if (count > 0) {
      this.#counts.set(key, count);
      return;
    }
    this.#counts.delete(key);
    this.#ended.add(key);
  }

  /** Replaces all counts. `keys` has one element for each task with a key. */
  recount(keys: readonly string[]): void {
    this.#counts.clear();
    for (const key of keys) this.add(key);
  }

  /** Returns the keys whose tasks have ended since the last call. Another task may wait for that. */
  takeEnded(): string[] {
    const ended = [...this.#ended];
    if (ended.length > 0) this.#ended = new Set();
    return ended;
  }

  putBack(keys: readonly string[]): void {
    for (const key of keys) this.#ended.add(key);
  }
}

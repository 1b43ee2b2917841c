/** How many tasks of each group run now, by the group's hash. */
export class Groups {
  readonly #running = new Map<number, number>();
  #total = 0;

  get running(): ReadonlyMap<number, number> {
    return this.#running;
  }

  /** Over all groups. */
  get total(): number {
    return this.#total;
  }

  begin(hash: number): void {
    this.#running.set(hash, (this.#running.get(hash) ?? 0) + 1);
    this.#total += 1;
  }

  end(hash: number): void {
    this.#total -= 1;
    const left = (this.#running.get(hash) ?? 0) - 1;
    if (left > 0) this.#running.set(hash, left);
    else this.#running.delete(hash);
  }
}

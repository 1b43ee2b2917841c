/** How long results may fail to reach their rows when everything else has ended, in ms. */
const lastWritesMs = 5_000;

/** When to give up results that are left at the end: not as long as some of them still reach their rows. */
export class FinalWriteDeadline {
  #left = Infinity;
  #until = 0;

  /** @param left how many results are not in their rows yet, at least one. */
  over(left: number): boolean {
    if (left < this.#left) {
      this.#left = left;
      this.#until = performance.now() + lastWritesMs;
    }
    return performance.now() >= this.#until;
  }
}

/** How long the manager, at its end, waits for progress in writing results, in ms. */
const finalWriteMs = 5_000;

/** Decides when to give up unwritten results at the end. While results are written, the deadline is extended. */
export class FinalWriteDeadline {
  #fewest = Infinity;
  #until = 0;

  /** Returns whether to give up. `pending` is the number of unwritten results, at least one. */
  isOver(pending: number): boolean {
    if (pending < this.#fewest) {
      this.#fewest = pending;
      this.#until = performance.now() + finalWriteMs;
    }
    return performance.now() >= this.#until;
  }
}

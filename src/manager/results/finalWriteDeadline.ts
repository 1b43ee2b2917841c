/** How long the manager, at its end, waits for progress in writing results, in ms. */
const finalWriteMs = 5_000;

/**
 * Decides when to give up results that are unwritten when the manager ends. As long as results are still being written,
 * the deadline is extended.
 */
export class FinalWriteDeadline {
  #fewest = Infinity;
  #until = 0;

  /**
   * Returns whether to give up.
   * @param pending how many results are not written yet, at least one.
   */
  isOver(pending: number): boolean {
    if (pending < this.#fewest) {
      this.#fewest = pending;
      this.#until = performance.now() + finalWriteMs;
    }
    return performance.now() >= this.#until;
  }
}

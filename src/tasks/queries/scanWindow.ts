/** Number of rows in the first window, in the smallest window and in the largest window. */
const firstRows = 2_000;
const minRows = 100;
const maxRows = 20_000;
/**
 * Duration in ms that decides the size of the next window. If reading a window took longer, the next window is smaller.
 * If it took less than a third of this time, the next window is larger.
 */
const slowMs = 300;

/**
 * Adapts the size of a window, which is the number of rows that one statement of a table scan reads. This keeps each
 * statement short, however large the values in the rows are.
 */
export class ScanWindow {
  #rows = firstRows;

  get rows(): number {
    return this.#rows;
  }

  /**
   * Runs a statement that reads `rows` rows, and adapts the size of the next window to the duration of the statement.
   */
  async timed<T>(work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const result = await work();
    const tookMs = performance.now() - began;
    if (tookMs > slowMs) this.#rows = Math.max(minRows, Math.trunc(this.#rows / 4));
    else if (tookMs < slowMs / 3) this.#rows = Math.min(maxRows, this.#rows * 2);
    return result;
  }
}

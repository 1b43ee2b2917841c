/** Rows of the first window, of the smallest and of the largest. */
const first = 2_000;
const smallest = 100;
const largest = 20_000;
/** A window that took longer than this is followed by a smaller one, one of a third of it by a larger one, in ms. */
const slowMs = 300;

/**
 * How many rows a statement looks through, when it goes through a table by id: no statement takes
 * long, however large the texts in the rows are.
 */
export class Window {
  #rows = first;

  get rows(): number {
    return this.#rows;
  }

  /** Runs a statement on that many rows, and goes by how long it took. */
  async timed<T>(work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const result = await work();
    const tookMs = performance.now() - began;
    if (tookMs > slowMs) this.#rows = Math.max(smallest, Math.trunc(this.#rows / 4));
    else if (tookMs < slowMs / 3) this.#rows = Math.min(largest, this.#rows * 2);
    return result;
  }
}

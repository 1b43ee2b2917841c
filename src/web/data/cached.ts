/** Keeps the last result for each key, so that several readers share the work. A failure is not kept. */
export class Cached<T> {
  readonly #keepMs: number;
  readonly #entries = new Map<string, { readonly result: Promise<T>; endedAt: number }>();

  /** @param keepMs counted from the arrival of a result */
  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  async get(key: string, read: () => Promise<T>): Promise<T> {
    const now = performance.now();
    for (const [each, { endedAt }] of this.#entries) if (now - endedAt > this.#keepMs) this.#entries.delete(each);
    const known = this.#entries.get(key);
    if (known !== undefined) return await known.result;
    const entry = { result: read(), endedAt: Infinity };
    this.#entries.set(key, entry);
    try {
      return await entry.result;
    } catch (error) {
      this.#entries.delete(key);
      throw error;
    } finally {
      entry.endedAt = performance.now();
    }
  }
}

/** A seeded 32-bit pseudo-random generator, so that a test run can be repeated. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Returns a number from 0 (inclusive) to 1 (exclusive). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns an integer from 0 (inclusive) to `limit` (exclusive). */
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  /** Returns an integer from `min` to `max`, both inclusive. */
  between(min: number, max: number): number {
    return min + this.below(max - min + 1);
  }

  /** Returns a random element of a list, which must not be empty. */
  pick<T>(list: readonly T[]): T {
    const picked = list[this.below(list.length)];
    if (picked === undefined) throw new Error("nothing to pick from");
    return picked;
  }

  /** Returns a random element of a list, which must not be empty, chosen by weight. */
  pickWeighted<T extends { readonly weight: number }>(list: readonly T[]): T {
    let rest = this.below(list.reduce((sum, { weight }) => sum + weight, 0));
    for (const each of list) {
      rest -= each.weight;
      if (rest < 0) return each;
    }
    throw new Error("nothing to pick from");
  }
}

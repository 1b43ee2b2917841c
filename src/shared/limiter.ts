/** Lets no more than `limit` jobs run at once; the others wait their turn in the order they came. */
export class Limiter {
  readonly #waiting: (() => void)[] = [];
  #limit: number;
  #running = 0;

  /** @param limit at least 1 */
  constructor(limit: number) {
    this.#limit = limit;
  }

  set limit(limit: number) {
    this.#limit = limit;
    this.#next();
  }

  async run(job: () => Promise<void>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
      this.#next();
    });
    try {
      await job();
    } finally {
      this.#running -= 1;
      this.#next();
    }
  }

  #next(): void {
    while (this.#running < this.#limit) {
      const begin = this.#waiting.shift();
      if (begin === undefined) return;
      this.#running += 1;
      begin();
    }
  }
}

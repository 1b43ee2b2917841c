/** Runs at most `limit` jobs (at least 1) at once, the others in order of arrival. */
export class Limiter {
  readonly #waiting: (() => void)[] = [];
  #limit: number;
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  set limit(limit: number) {
    this.#limit = limit;
    this.#startNext();
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async run(job: () => Promise<void>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
      this.#startNext();
    });
    try {
      await job();
    } finally {
      this.#running -= 1;
      this.#startNext();
    }
  }

  #startNext(): void {
    while (this.#running < this.#limit) {
      const start = this.#waiting.shift();
      if (start === undefined) return;
      this.#running += 1;
      start();
    }
  }
}

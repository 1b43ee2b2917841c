/**
 * Lets one caller at a time wait for a notification. One that arrives while nobody waits ends the next wait at once.
 */
export class WakeSignal {
  #isNotified = false;
  #wake: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;

  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  /** Unless the timer of an earlier call is still running. */
  notifyIn(ms: number): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.notify();
    }, ms);
  }

  /** Returns false if `ms` passed first. */
  async wait(ms: number): Promise<boolean> {
    if (!this.#isNotified) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = null;
    }
    const isNotified = this.#isNotified;
    this.#isNotified = false;
    return isNotified;
  }
}

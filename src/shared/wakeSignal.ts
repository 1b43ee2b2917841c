/** Wakes one waiter: by ringing or by time, whichever is first. A ring while nobody waits is kept. */
export class WakeSignal {
  #rung = false;
  #answer: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;

  notify(): void {
    this.#rung = true;
    this.#answer?.();
  }

  /** Rings when `ms` have passed; while that is so already, nothing more. */
  ringIn(ms: number): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.notify();
    }, ms);
  }

  /** @returns true when it was rung, false when `ms` passed before that. */
  async wait(ms: number): Promise<boolean> {
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#answer = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#answer = null;
    }
    const rung = this.#rung;
    this.#rung = false;
    return rung;
  }
}

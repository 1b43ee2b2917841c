/**
 * Lets one caller at a time wait for a notification or a timeout. A notification that arrives while no caller waits
 * ends the next wait at once.
 */
export class WakeSignal {
  #isNotified = false;
  #wake: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;

  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  /** Notifies after `ms`, unless the timer of an earlier call is still running. */
  notifyIn(ms: number): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.notify();
    }, ms);
  }

  /**
   * Waits for a notification.
   *
   * @returns true if notified, false if `ms` passed first
   */
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

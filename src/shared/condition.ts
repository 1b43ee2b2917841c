/** Condition variable: `notify()` makes every waiting caller check its predicate again. */
export class Condition {
  #waiting: (() => void)[] = [];

  notify(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async until(predicate: () => boolean, signal: AbortSignal): Promise<void> {
    const notify = (): void => this.notify();
    signal.addEventListener("abort", notify, { once: true });
    while (!predicate() && !signal.aborted) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    signal.removeEventListener("abort", notify);
  }
}

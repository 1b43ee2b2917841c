/** Tells those who wait for something to be so that it may be by now. */
export class Condition {
  #waiting: (() => void)[] = [];

  tell(): void {
    for (const each of this.#waiting.splice(0)) each();
  }

  /** Resolves when `condition` holds, which is looked at whenever something is told, or on abort. */
  async until(condition: () => boolean, signal: AbortSignal): Promise<void> {
    const told = (): void => this.tell();
    signal.addEventListener("abort", told, { once: true });
    while (!condition() && !signal.aborted) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    signal.removeEventListener("abort", told);
  }
}

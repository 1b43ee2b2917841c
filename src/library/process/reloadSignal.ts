/**
 * Handles SIGHUP from the start of the process to its end, so that this signal never kills the process. A signal that
 * arrives before there is a listener is remembered.
 */
export class ReloadSignal {
  #requested = false;
  #listener: (() => void) | null = null;

  constructor() {
    process.on("SIGHUP", this.#onSignal);
  }

  /** Calls `listener` on every signal. If a signal arrived earlier, calls `listener` at once. */
  subscribe(listener: () => void): void {
    this.#listener = listener;
    if (this.#requested) listener();
  }

  close(): void {
    process.off("SIGHUP", this.#onSignal);
  }

  readonly #onSignal = (): void => {
    if (this.#listener === null) this.#requested = true;
    else this.#listener();
  };
}

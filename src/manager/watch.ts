/** Looks again after a while, as often as it is started; what has been heard by then counts. Keeps no process alive. */
export class Watch {
  readonly #ms: number;
  readonly #look: () => void;
  #running = false;

  /** @param ms how long after the start `look` is called. */
  constructor(ms: number, look: () => void) {
    this.#ms = ms;
    this.#look = look;
  }

  /** Without effect while it runs. */
  start(): void {
    if (this.#running) return;
    this.#running = true;
    const from = performance.now();
    setTimeout(() => {
      this.#running = false;
      // This thread came late itself: what others have said meanwhile is heard first.
      if (performance.now() - from > 2 * this.#ms) this.start();
      else this.#look();
    }, this.#ms).unref();
  }
}

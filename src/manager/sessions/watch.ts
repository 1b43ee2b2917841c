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
    this.#wait(true);
  }

  /** @param patient whether it waits once more when this thread has come late itself, so that others are heard first. */
  #wait(patient: boolean): void {
    const from = performance.now();
    setTimeout(() => {
      const late = performance.now() - from > 2 * this.#ms;
      if (!late) this.#end();
      else if (patient) this.#wait(false);
      // One that is always late would never look. What has come by now is read before an immediate.
      else setImmediate(() => this.#end());
    }, this.#ms).unref();
  }

  #end(): void {
    this.#running = false;
    this.#look();
  }
}

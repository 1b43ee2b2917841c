/**
 * Hears SIGHUP from the first moment to the last, so that it never ends the process, and passes it
 * on to who can reload by then.
 */
export class ReloadRequest {
  readonly ignore: () => void;
  #asked = false;
  #tell: (() => void) | null = null;

  constructor() {
    const hear = (): void => {
      if (this.#tell === null) this.#asked = true;
      else this.#tell();
    };
    process.on("SIGHUP", hear);
    this.ignore = () => void process.off("SIGHUP", hear);
  }

  /** From now on `tell` is called; at once if a reload was asked for before. */
  passOn(tell: () => void): void {
    this.#tell = tell;
    if (this.#asked) tell();
  }
}

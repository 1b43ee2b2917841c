/** How long a leader may be unable to serve any entry before it offers the leadership, and between two offers, in ms. */
const pauseMs = 10_000;

/**
 * Offers the leadership from time to time while this process leads and cannot serve any entry, because a standby may be
 * able to: it may have other passwords, for example.
 */
export class FutileLeadership {
  readonly #isFutile: () => boolean;
  readonly #offer: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param options.isFutile whether this process leads and cannot serve any entry
   * @param options.offer offers the leadership to the standbys, once
   */
  constructor(options: { readonly isFutile: () => boolean; readonly offer: () => Promise<void> }) {
    this.#isFutile = options.isFutile;
    this.#offer = options.offer;
  }

  /** Called when what `isFutile` returns may have changed. */
  check(): void {
    if (this.#isFutile()) {
      this.#timer ??= setTimeout(() => void this.#offerOnce(), pauseMs).unref();
    } else {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    }
  }

  async #offerOnce(): Promise<void> {
    await this.#offer();
    this.#timer = undefined;
    this.check();
  }
}

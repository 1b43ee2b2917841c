const enter = "\x1b[?1049h\x1b[?25l";
const leave = "\x1b[?25h\x1b[?1049l";
/** Ctrl-C, Ctrl-D and Escape alone end it as q does. */
const quits = new Set(["q", "Q", "\x03", "\x04", "\x1b"]);
const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** The terminal's second screen: however it is left, the first one is back as it was. */
export class FullScreen {
  readonly #left = new AbortController();
  #open = false;
  #lines: readonly string[] = [];

  /** Aborted when somebody wants to leave. */
  get signal(): AbortSignal {
    return this.#left.signal;
  }

  open(): void {
    this.#open = true;
    process.stdout.write(enter);
    process.stdin.setRawMode(true);
    process.stdin.on("data", this.#key);
    process.stdin.resume();
    process.stdout.on("resize", this.#redraw);
    for (const signal of signals) process.on(signal, this.#leave);
    process.on("exit", this.close);
  }

  /** Shows these lines from the top, as far as there is room. */
  draw(lines: readonly string[]): void {
    if (!this.#open) return;
    this.#lines = lines;
    const shown = lines.slice(0, process.stdout.rows || 24);
    process.stdout.write(`\x1b[H${shown.map((line) => `${line}\x1b[K`).join("\r\n")}\x1b[J`);
  }

  readonly close = (): void => {
    if (!this.#open) return;
    this.#open = false;
    process.stdin.off("data", this.#key);
    process.stdin.setRawMode(false);
    process.stdin.pause();
    process.stdout.off("resize", this.#redraw);
    for (const signal of signals) process.off(signal, this.#leave);
    process.off("exit", this.close);
    process.stdout.write(leave);
  };

  readonly #leave = (): void => this.#left.abort();

  readonly #key = (data: Buffer): void => {
    if (quits.has(data.toString())) this.#leave();
  };

  readonly #redraw = (): void => this.draw(this.#lines);
}

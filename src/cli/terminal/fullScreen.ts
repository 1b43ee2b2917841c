const enter = "\x1b[?1049h\x1b[?25l";
const leave = "\x1b[?25h\x1b[?1049l";
/** The keys that quit: q, Ctrl-C, Ctrl-D and a lone Escape. */
const quitKeys = new Set(["q", "Q", "\x03", "\x04", "\x1b"]);
const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** The terminal's alternate screen. The main screen is restored however the program ends. */
export class FullScreen {
  readonly #quit = new AbortController();
  #open = false;
  #lines: readonly string[] = [];

  /** Aborted when the user quits. */
  get signal(): AbortSignal {
    return this.#quit.signal;
  }

  open(): void {
    this.#open = true;
    process.stdout.write(enter);
    process.stdin.setRawMode(true);
    process.stdin.on("data", this.#onKey);
    process.stdin.resume();
    process.stdout.on("resize", this.#redraw);
    for (const signal of signals) process.on(signal, this.#onQuit);
    process.on("exit", this.close);
  }

  /** Draws lines from the top of the screen, as many as fit. */
  draw(lines: readonly string[]): void {
    if (!this.#open) return;
    this.#lines = lines;
    const shown = lines.slice(0, process.stdout.rows || 24);
    process.stdout.write(`\x1b[H${shown.map((line) => `${line}\x1b[K`).join("\r\n")}\x1b[J`);
  }

  readonly close = (): void => {
    if (!this.#open) return;
    this.#open = false;
    process.stdin.off("data", this.#onKey);
    process.stdin.setRawMode(false);
    process.stdin.pause();
    process.stdout.off("resize", this.#redraw);
    for (const signal of signals) process.off(signal, this.#onQuit);
    process.off("exit", this.close);
    process.stdout.write(leave);
  };

  readonly #onQuit = (): void => this.#quit.abort();

  readonly #onKey = (data: Buffer): void => {
    if (quitKeys.has(data.toString())) this.#onQuit();
  };

  readonly #redraw = (): void => this.draw(this.#lines);
}

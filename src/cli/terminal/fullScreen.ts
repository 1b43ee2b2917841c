import { emitKeypressEvents, type Key } from "node:readline";

/** Alternate screen, no cursor, and long lines do not continue in the next line. */
const enter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const leave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

export interface ScreenEvents {
  /** Called for each key that does not quit. `text` is what the key types; it is empty for keys such as arrows. */
  readonly onKey: (name: string, text: string) => void;
  readonly onResize: () => void;
}

/** The terminal's alternate screen. The main screen is restored however the program ends. */
export class FullScreen {
  readonly #quit = new AbortController();
  readonly #events: ScreenEvents;
  #open = false;

  constructor(events: ScreenEvents) {
    this.#events = events;
  }

  get signal(): AbortSignal {
    return this.#quit.signal;
  }

  open(): void {
    const { stdin, stdout } = process;
    this.#open = true;
    stdout.write(enter);
    stdin.setRawMode(true);
    emitKeypressEvents(stdin);
    stdin.on("keypress", this.#onKey);
    // The terminal was closed.
    stdin.on("end", this.quit);
    stdin.on("error", this.quit);
    stdin.resume();
    stdout.on("resize", this.#events.onResize);
    for (const signal of signals) process.on(signal, this.quit);
    process.on("exit", this.close);
  }

  draw(lines: readonly string[]): void {
    if (!this.#open) return;
    const shown = lines.slice(0, process.stdout.rows || 24);
    process.stdout.write(`\x1b[H${shown.map((line) => `${line}\x1b[K`).join("\r\n")}\x1b[J`);
  }

  readonly close = (): void => {
    if (!this.#open) return;
    this.#open = false;
    const { stdin, stdout } = process;
    stdin.off("keypress", this.#onKey);
    stdin.setRawMode(false);
    stdin.pause();
    stdout.off("resize", this.#events.onResize);
    for (const signal of signals) process.off(signal, this.quit);
    process.off("exit", this.close);
    stdout.write(leave);
  };

  readonly quit = (): void => this.#quit.abort();

  readonly #onKey = (typed: string | undefined, key: Key): void => {
    const { name = "", ctrl = false, meta = false } = key;
    if (ctrl && (name === "c" || name === "d")) this.quit();
    else if (ctrl) this.#events.onKey(`ctrl-${name}`, "");
    else this.#events.onKey(name, meta || typed === undefined || /\p{Cc}/u.test(typed) ? "" : typed);
  };
}

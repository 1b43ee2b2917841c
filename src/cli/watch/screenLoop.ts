import type { Configuration, Entry } from "../../shared/config/types.js";
import { sleep } from "../../shared/backoff.js";
import { toReport } from "../../shared/errors.js";
import { printableLine } from "../../shared/printable.js";
import type { TaskFilter } from "../../tasks/types.js";
import { withEntry, type OpenTable } from "../support/openTable.js";
import { FullScreen } from "../terminal/fullScreen.js";
import type { Terminal } from "../terminal/terminal.js";
import { Controls } from "./controls.js";
import { addBottomLine, formatHeader, formatTasks, formatTitle, type Snapshot } from "./frame.js";
import { isInvalidFilter, readPage, type Page } from "./readPage.js";
import { unlessAborted } from "./unlessAborted.js";

export interface ScreenOptions {
  readonly configuration: Configuration;
  readonly entry: Entry;
  readonly filter: TaskFilter;
  readonly intervalMs: number;
  readonly readSnapshot: (opened: OpenTable) => Promise<Snapshot>;
}

/**
 * Shows a table on the full screen until the user quits. The status is read once per interval, and the tasks also when
 * the user scrolls or filters. No two statements run at the same time: keys that are pressed meanwhile count together.
 */
export class ScreenLoop {
  readonly #terminal: Terminal;
  readonly #options: ScreenOptions;
  readonly #controls: Controls;
  readonly #screen: FullScreen;
  /** Aborted when tasks have to be read before the interval is over. */
  #wake = new AbortController();
  #snapshot: Snapshot | null = null;
  #page: Page = { filter: {}, tasks: [], top: null, searched: null };
  #problem: string | null = null;

  constructor(terminal: Terminal, options: ScreenOptions) {
    this.#terminal = terminal;
    this.#options = options;
    this.#controls = new Controls(options.filter);
    this.#screen = new FullScreen({
      onKey: (name, text) => this.#onKey(name, text),
      onResize: () => {
        this.#draw();
        this.#wake.abort();
      },
    });
  }

  /**
   * Reconnects if the connection is lost.
   *
   * @throws PgTaskError USAGE if the server refuses the filter
   */
  async run(): Promise<void> {
    const { configuration, entry, intervalMs } = this.#options;
    const { signal } = this.#screen;
    this.#screen.open();
    try {
      while (!signal.aborted) {
        try {
          // A server that does not answer must not keep the user from quitting.
          await withEntry(configuration, entry, "watch", (opened) => unlessAborted(this.#update(opened), signal), {
            signal,
          });
        } catch (error) {
          if (isInvalidFilter(error)) throw error;
          if (signal.aborted) break;
          this.#problem = toReport(error).message;
          this.#draw();
          await sleep(intervalMs, signal);
        }
      }
    } finally {
      this.#screen.close();
    }
  }

  async #update(opened: OpenTable): Promise<void> {
    const { signal } = this.#screen;
    let nextAt = -Infinity;
    while (!signal.aborted) {
      if (performance.now() >= nextAt) {
        this.#snapshot = await this.#options.readSnapshot(opened);
        nextAt = performance.now() + this.#options.intervalMs;
      }
      this.#wake = new AbortController();
      const waking = AbortSignal.any([signal, this.#wake.signal]);
      this.#page = await readPage(opened, {
        filter: this.#controls.filter,
        top: this.#page.top,
        scroll: this.#controls.takeScroll(),
        rows: this.#taskRows,
        characters: this.#terminal.columns,
      });
      this.#problem = null;
      this.#draw();
      await sleep(Math.max(0, nextAt - performance.now()), waking);
    }
  }

  /** Number of tasks that fit below the header, its titles and what says which tasks these are. */
  get #taskRows(): number {
    const header = this.#snapshot === null ? [] : formatHeader(this.#terminal, this.#options.entry, this.#snapshot);
    return Math.max(1, this.#terminal.rows - header.length - 3);
  }

  #onKey(name: string, text: string): void {
    const change = this.#controls.press(name, text, this.#taskRows);
    if (change === "quit") this.#screen.quit();
    else if (change !== "nothing") this.#draw();
    if (change === "tasks") this.#wake.abort();
  }

  #draw(): void {
    const terminal = this.#terminal;
    const { entry } = this.#options;
    const lines =
      this.#snapshot === null || this.#problem !== null
        ? [formatTitle(terminal, entry), "", ...printableLine(this.#problem ?? "").split("\n")]
        : [...formatHeader(terminal, entry, this.#snapshot), ...formatTasks(terminal, this.#page)];
    this.#screen.draw(addBottomLine(terminal, lines, this.#controls.line));
  }
}

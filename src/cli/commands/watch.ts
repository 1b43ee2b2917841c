import { sleep } from "../../shared/backoff.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import { readGroups, type Groups } from "../../tasks/queries/groups.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import type { TaskFilter } from "../../tasks/types.js";
import { formatTableStatus, queryTableStatus, type TableStatus } from "../status.js";
import { groupColumns, taskColumns } from "../support/columns.js";
import { chooseEntry, loadForCommand, withEntry, type OpenTable } from "../support/openTable.js";
import { filterFromOptions, type CommandOptions, type FilterOptions } from "../support/options.js";
import { formatNumber, formatTime, truncate } from "../terminal/format.js";
import { FullScreen } from "../terminal/fullScreen.js";
import { renderTable } from "../terminal/table.js";
import { colourText, withInterrupt, type Terminal } from "../terminal/terminal.js";
import { Controls, isInvalidFilter, readPage, type Page } from "../watch/controls.js";

interface WatchOptions extends CommandOptions, FilterOptions {
  readonly interval: number;
}

const maxRateRows = 20_000;
/** Of the groups, on the screen and in a line of JSON. */
const maxGroups = 8;
const maxTasks = 50;
const maxCharacters = 1000;
const searchMs = 1_000;

export async function watch(terminal: Terminal, options: WatchOptions): Promise<number> {
  if (options.json !== true && !terminal.isInteractive) {
    throw new PgTaskError("USAGE", "watch needs a terminal: in scripts use pg-task watch --json");
  }
  const configuration = await loadForCommand(terminal, options);
  const entry = chooseEntry(terminal, configuration, options);
  const filter = filterFromOptions(options);
  const intervalMs = options.interval * 1000;
  if (options.json === true) {
    await withEntry(configuration, entry, "watch", (opened) => writeJsonLines(terminal, opened, filter, intervalMs));
  } else {
    await new ScreenLoop(terminal, { configuration, entry, filter, intervalMs }).run();
  }
  return 0;
}

/** Prints one line per update until a signal arrives or the reader closes the output. */
async function writeJsonLines(
  terminal: Terminal,
  opened: OpenTable,
  filter: TaskFilter,
  intervalMs: number,
): Promise<void> {
  await withInterrupt(async (signal) => {
    const writeLines = async (): Promise<void> => {
      do {
        const { status, groups } = await readSnapshot(opened);
        const end = performance.now() + searchMs;
        const request = { filter, limit: maxTasks, characters: maxCharacters };
        const { tasks } = await listTasks(opened.client, opened.table, request, () => performance.now() >= end);
        const at = new Date().toISOString();
        if (!signal.aborted) terminal.write(`${jsonText({ at, ...status, groups, tasks }, 0)}\n`);
      } while (await sleep(intervalMs, signal));
    };
    await unlessAborted(writeLines(), signal);
  });
}

/** Reads everything that an update shows, except the tasks. */
async function readSnapshot(opened: OpenTable): Promise<Snapshot> {
  const options = { limit: maxGroups, ended: false };
  return {
    status: await queryTableStatus(opened, maxRateRows),
    groups: await readGroups(opened.client, opened.table, options),
  };
}

interface ScreenOptions {
  readonly configuration: Configuration;
  readonly entry: Entry;
  readonly filter: TaskFilter;
  readonly intervalMs: number;
}

/**
 * The status is read once per interval, and the tasks also when the user scrolls or filters. No two statements run at
 * the same time: keys that are pressed meanwhile count together.
 */
class ScreenLoop {
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

  /** @throws PgTaskError USAGE if the server refuses the filter. If the connection is lost, it reconnects. */
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
        this.#snapshot = await readSnapshot(opened);
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

  /** Below the header, there are the titles, a line that says which tasks these are, and the bottom line. */
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

interface Snapshot {
  readonly status: TableStatus;
  readonly groups: Groups;
}

const minTaskLines = 4;

/** On a small screen, groups are left out so that tasks have half of the lines. */
function formatHeader(terminal: Terminal, entry: Entry, { status, groups }: Snapshot): string[] {
  const lines = formatTableStatus(status, null).map((line) => fitLine(terminal, line));
  const head = [formatTitle(terminal, entry), ...lines, ""];
  const table = renderTable(terminal, groupColumns, groups.groups.slice(0, maxGroups));
  // The table of groups has a line of titles, and an empty line below it.
  const most = Math.floor(terminal.rows / 2) - head.length - 1;
  if (most >= 2 && table.length >= 2) return [...head, ...table.slice(0, most), ""];
  return head.slice(0, Math.max(1, terminal.rows - minTaskLines - 1));
}

function formatTitle(terminal: Terminal, { target, schema, table }: Entry): string {
  const time = formatTime(new Date().toISOString());
  return colourText(terminal, "bold", fitLine(terminal, `${target.database}  ${schema}.${table}  ${time}`));
}

/** Says which tasks these are unless they are simply the newest ones. */
function formatTasks(terminal: Terminal, { filter, tasks, top, searched }: Page): string[] {
  const parts = [
    ...(top === null ? [] : [`from task ${top}, Home follows the newest`]),
    ...Object.entries(filter).map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(",") : value}`),
    ...(tasks.length > 0 || searched !== null ? [] : ["no tasks"]),
    ...(searched === null ? [] : [`searched ${formatNumber(searched)} rows`]),
  ];
  const part = parts.length === 0 ? [] : [colourText(terminal, "yellow", fitLine(terminal, parts.join("  ")))];
  return [...part, ...renderTable(terminal, taskColumns(tasks), tasks)];
}

function addBottomLine(terminal: Terminal, lines: readonly string[], bottom: string): string[] {
  const rest = Math.max(0, terminal.rows - 1);
  const empty = Array.from({ length: Math.max(0, rest - lines.length) }, () => "");
  return [...lines.slice(0, rest), ...empty, colourText(terminal, "grey", fitLine(terminal, bottom))];
}

const fitLine = (terminal: Terminal, line: string): string => truncate(printableLine(line), terminal.columns);

/** Resolves when the work has ended or the signal is aborted, whichever comes first. */
async function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = new AbortController();
  try {
    await Promise.race([
      work,
      new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener("abort", () => resolve(), { signal: aborted.signal });
      }),
    ]);
  } finally {
    aborted.abort();
  }
}

import type { Command } from "commander";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { sleep } from "../../shared/backoff.js";
import { briefly, readGroups, type Groups } from "../../tasks/queries/groups.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import type { TaskSummary } from "../../tasks/queries/taskSummary.js";
import { tableColumns } from "./groups.js";
import { taskColumns } from "./list.js";
import { chooseEntry, loadForCommand, onEntry, type OpenTable } from "../support/openTable.js";
import { wholeNumber, withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { FullScreen } from "../terminal/fullScreen.js";
import { printableLine } from "../terminal/escape.js";
import { table } from "../terminal/table.js";
import { coloured, type Terminal } from "../terminal/terminal.js";
import { cut } from "../terminal/displayWidth.js";
import { shownTime } from "../terminal/format.js";
import { askTable, type TableStatus } from "../status/readStatus.js";
import { tableLines } from "../status/formatStatus.js";

interface WatchOptions extends CommandOptions {
  readonly interval: number;
}

/** Groups that are shown at most, and rows that rates are counted in. */
const mostGroups = 8;
const newestRows = 20_000;
/** Tasks in a line of JSON, and characters of each of their texts. */
const mostTasks = 50;
const mostCharacters = 1000;

export function declareWatch(program: Command, run: CommandRun): void {
  const command = program
    .command("watch")
    .description(
      "watch a table live on the terminal; q ends it. With --json a line of JSON for each look",
    )
    .option("--interval <s>", "seconds between two looks", wholeNumber(1, 3600), 1);
  withTableOptions(command).action((options: WatchOptions) =>
    run((terminal) => watch(terminal, options)),
  );
}

async function watch(terminal: Terminal, options: WatchOptions): Promise<number> {
  if (options.json !== true && !terminal.canAsk) {
    throw new PgTaskError(
      "USAGE",
      "expected a terminal to watch on: scripts use pg-task watch --json",
    );
  }
  const configuration = await loadForCommand(options);
  const entry = chooseEntry(configuration, options);
  if (options.json === true) {
    await onEntry(configuration, entry, "watch", (opened) =>
      writeLooks(terminal, opened, options.interval * 1000),
    );
    return 0;
  }
  const screen = new FullScreen();
  screen.open();
  try {
    await follow(terminal, screen, configuration, entry, options.interval * 1000);
  } finally {
    screen.close();
  }
  return 0;
}

/** A line for each look, until a signal or the reader ends it. */
async function writeLooks(
  terminal: Terminal,
  opened: OpenTable,
  intervalMs: number,
): Promise<void> {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  process.on("SIGINT", end);
  process.on("SIGTERM", end);
  try {
    do {
      const { status, groups } = await look(opened);
      const tasks = await newest(opened, mostTasks, mostCharacters);
      const at = new Date().toISOString();
      terminal.write(`${JSON.stringify({ at, ...status, groups, tasks })}\n`);
    } while (await sleep(intervalMs, ending.signal));
  } finally {
    process.off("SIGINT", end);
    process.off("SIGTERM", end);
  }
}

/** Draws until the screen is left; connects again when the connection is lost. */
async function follow(
  terminal: Terminal,
  screen: FullScreen,
  configuration: Configuration,
  entry: Entry,
  intervalMs: number,
): Promise<void> {
  const { signal } = screen;
  while (!signal.aborted) {
    try {
      await onEntry(configuration, entry, "watch", async (opened) => {
        do {
          screen.draw(await frame(terminal, opened));
        } while (await sleep(intervalMs, signal));
      });
    } catch (error) {
      const { message } = toReport(error);
      screen.draw([title(terminal, entry), "", ...printableLine(message).split("\n")]);
      await sleep(intervalMs, signal);
    }
  }
}

function title(terminal: Terminal, { target, schema, table: name }: Entry): string {
  const left = `${target.database}  ${schema}.${name}`;
  const right = `${shownTime(new Date().toISOString())}  q ends`;
  return coloured(terminal, "bold", cut(printableLine(`${left}  ${right}`), terminal.columns));
}

/** Everything of the table that a look shows, but for its tasks. */
async function look(opened: OpenTable): Promise<{ status: TableStatus; groups: Groups }> {
  const effort = { limit: mostGroups, ended: false, effort: briefly };
  return {
    status: await askTable(opened, newestRows),
    groups: await readGroups(opened.client, opened.table, effort),
  };
}

async function newest(
  { client, table: names }: OpenTable,
  limit: number,
  characters: number,
): Promise<readonly TaskSummary[]> {
  return (await listTasks(client, names, { filter: {}, limit, characters })).tasks;
}

async function frame(terminal: Terminal, opened: OpenTable): Promise<string[]> {
  const { status, groups } = await look(opened);
  const head = [
    title(terminal, opened.entry),
    ...tableLines(status).map((line) => cut(printableLine(line), terminal.columns)),
    "",
    ...(groups.groups.length === 0
      ? []
      : [...table(terminal, tableColumns(groups), groups.groups), ""]),
  ];
  const room = Math.max(1, terminal.rows - head.length - 1);
  const tasks = await newest(opened, room, terminal.columns);
  return [...head, ...table(terminal, taskColumns, tasks)];
}

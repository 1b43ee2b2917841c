import type { TaskSummary } from "../../tasks/types.js";
import type { Command } from "commander";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { sleep } from "../../shared/backoff.js";
import { pollLimits, readGroups, type Groups } from "../../tasks/queries/groups.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import { groupColumns } from "../support/groupColumns.js";
import { chooseEntry, loadForCommand, withEntry, type OpenTable } from "../support/openTable.js";
import { integerParser, addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import { taskColumns } from "../support/taskColumns.js";
import { FullScreen } from "../terminal/fullScreen.js";
import { printableLine } from "../../shared/printable.js";
import { renderTable } from "../terminal/table.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import { truncate } from "../terminal/displayWidth.js";
import { formatTime } from "../terminal/format.js";
import { queryTableStatus, type TableStatus } from "../status/readStatus.js";
import { formatTableStatus } from "../status/formatStatus.js";

interface WatchOptions extends CommandOptions {
  readonly interval: number;
}

/** Maximum number of groups that are shown. */
const maxGroups = 8;
/** Rates are calculated from at most this many of the newest rows. */
const maxRateRows = 20_000;
/** Maximum number of tasks in a line of JSON. */
const maxTasks = 50;
/** Maximum number of characters of each value in a line of JSON. */
const maxCharacters = 1000;

export function registerWatch(program: Command, run: RunCommand): void {
  const command = program
    .command("watch")
    .description("watch a table live on the terminal; q quits. --json prints a line of JSON per update")
    .option("--interval <s>", "seconds between updates", integerParser(1, 3600), 1);
  addTableOptions(command).action((options: WatchOptions) => run((terminal) => watch(terminal, options)));
}

async function watch(terminal: Terminal, options: WatchOptions): Promise<number> {
  if (options.json !== true && !terminal.isInteractive) {
    throw new PgTaskError("USAGE", "watch needs a terminal: in scripts use pg-task watch --json");
  }
  const configuration = await loadForCommand(options);
  const entry = chooseEntry(configuration, options);
  if (options.json === true) {
    await withEntry(configuration, entry, "watch", (opened) =>
      writeJsonLines(terminal, opened, options.interval * 1000),
    );
    return 0;
  }
  const screen = new FullScreen();
  screen.open();
  try {
    await drawUntilQuit(terminal, screen, configuration, entry, options.interval * 1000);
  } finally {
    screen.close();
  }
  return 0;
}

/** Prints one line per update until a signal arrives or the reader closes the output. */
async function writeJsonLines(terminal: Terminal, opened: OpenTable, intervalMs: number): Promise<void> {
  const interrupt = new AbortController();
  const stop = (): void => interrupt.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    do {
      const { status, groups } = await readSnapshot(opened);
      const tasks = await readNewestTasks(opened, maxTasks, maxCharacters);
      const at = new Date().toISOString();
      terminal.write(`${JSON.stringify({ at, ...status, groups, tasks })}\n`);
    } while (await sleep(intervalMs, interrupt.signal));
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

/** Redraws until the user quits. Reconnects if the connection is lost. */
async function drawUntilQuit(
  terminal: Terminal,
  screen: FullScreen,
  configuration: Configuration,
  entry: Entry,
  intervalMs: number,
): Promise<void> {
  const { signal } = screen;
  while (!signal.aborted) {
    try {
      await withEntry(configuration, entry, "watch", async (opened) => {
        do {
          screen.draw(await renderFrame(terminal, opened));
        } while (await sleep(intervalMs, signal));
      });
    } catch (error) {
      const { message } = toReport(error);
      screen.draw([formatTitle(terminal, entry), "", ...printableLine(message).split("\n")]);
      await sleep(intervalMs, signal);
    }
  }
}

function formatTitle(terminal: Terminal, { target, schema, table: name }: Entry): string {
  const left = `${target.database}  ${schema}.${name}`;
  const right = `${formatTime(new Date().toISOString())}  q quits`;
  return colourText(terminal, "bold", truncate(printableLine(`${left}  ${right}`), terminal.columns));
}

/** Reads everything that an update shows, except the tasks. */
async function readSnapshot(opened: OpenTable): Promise<{ status: TableStatus; groups: Groups }> {
  const options = { limit: maxGroups, ended: false, limits: pollLimits };
  return {
    status: await queryTableStatus(opened, maxRateRows),
    groups: await readGroups(opened.client, opened.table, options),
  };
}

async function readNewestTasks(
  { client, table: names }: OpenTable,
  limit: number,
  characters: number,
): Promise<readonly TaskSummary[]> {
  return (await listTasks(client, names, { filter: {}, limit, characters })).tasks;
}

async function renderFrame(terminal: Terminal, opened: OpenTable): Promise<string[]> {
  const { status, groups } = await readSnapshot(opened);
  const header = [
    formatTitle(terminal, opened.entry),
    ...formatTableStatus(status).map((line) => truncate(printableLine(line), terminal.columns)),
    "",
    ...(groups.groups.length === 0 ? [] : [...renderTable(terminal, groupColumns(groups), groups.groups), ""]),
  ];
  const remainingRows = Math.max(1, terminal.rows - header.length - 1);
  const tasks = await readNewestTasks(opened, remainingRows, terminal.columns);
  return [...header, ...renderTable(terminal, taskColumns, tasks)];
}

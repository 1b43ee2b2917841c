import type { Command } from "commander";
import type { Configuration, Entry } from "../shared/config/types.js";
import { PgTaskError, toReport } from "../shared/errors.js";
import { pause } from "../shared/backoff.js";
import { briefly, readGroups } from "../tasks/groups.js";
import { listTasks } from "../tasks/listTasks.js";
import { groupColumns } from "./groups.js";
import { taskColumns } from "./list.js";
import {
  chooseEntry,
  loadForCommand,
  onEntry,
  type OpenTable,
  type TableOptions,
} from "./openTable.js";
import { wholeNumber, withPlaceOptions } from "./options.js";
import type { Run } from "./run.js";
import { FullScreen } from "./screen/fullScreen.js";
import { printableLine } from "./screen/printable.js";
import { table } from "./screen/table.js";
import { coloured, type Terminal } from "./screen/terminal.js";
import { cut } from "./screen/width.js";
import { shownTime } from "./screen/words.js";
import { askTable } from "./statusReading.js";
import { tableLines } from "./statusText.js";

interface WatchOptions extends TableOptions {
  readonly interval: number;
}

/** Groups that are shown at most, and rows that rates are counted in. */
const mostGroups = 8;
const newestRows = 20_000;

export function declareWatch(program: Command, run: Run): void {
  const command = program
    .command("watch")
    .description("watch a table live on the terminal; q ends it")
    .option("--interval <s>", "seconds between two looks", wholeNumber(1, 3600), 1);
  withPlaceOptions(command).action((options: WatchOptions) =>
    run((terminal) => watch(terminal, options)),
  );
}

async function watch(terminal: Terminal, options: WatchOptions): Promise<number> {
  if (!terminal.canAsk) {
    throw new PgTaskError(
      "USAGE",
      "expected a terminal to watch on: scripts use pg-task status --json",
    );
  }
  const configuration = await loadForCommand(options);
  const entry = chooseEntry(configuration, options);
  const screen = new FullScreen();
  screen.open();
  try {
    await follow(terminal, screen, configuration, entry, options.interval * 1000);
  } finally {
    screen.close();
  }
  return 0;
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
        } while (await pause(intervalMs, signal));
      });
    } catch (error) {
      const { message } = toReport(error);
      screen.draw([title(terminal, entry), "", ...printableLine(message).split("\n")]);
      await pause(intervalMs, signal);
    }
  }
}

function title(terminal: Terminal, { target, schema, table: name }: Entry): string {
  const left = `${target.database}  ${schema}.${name}`;
  const right = `${shownTime(new Date().toISOString())}  q ends`;
  return coloured(terminal, "bold", cut(printableLine(`${left}  ${right}`), terminal.columns));
}

async function frame(terminal: Terminal, opened: OpenTable): Promise<string[]> {
  const { client, table: names, entry } = opened;
  const status = await askTable(opened, newestRows);
  const found = await readGroups(client, names, {
    limit: mostGroups,
    ended: false,
    effort: briefly,
  });
  const head = [
    title(terminal, entry),
    ...tableLines(status).map((line) => cut(printableLine(line), terminal.columns)),
    "",
    ...(found.groups.length === 0
      ? []
      : [...table(terminal, groupColumns(found), found.groups), ""]),
  ];
  const room = Math.max(1, terminal.rows - head.length - 1);
  const { tasks } = await listTasks(client, names, {
    filter: {},
    limit: room,
    characters: terminal.columns,
  });
  return [...head, ...table(terminal, taskColumns, tasks)];
}

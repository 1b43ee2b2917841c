import type { Command } from "commander";
import { listTasks } from "../../tasks/queries/listTasks.js";
import { withTable } from "../support/openTable.js";
import {
  parseId,
  filterFromOptions,
  integerParser,
  addFilterOptions,
  addTableOptions,
  type CommandOptions,
  type FilterOptions,
  type RunCommand,
} from "../support/options.js";
import { summaryLength, taskColumns } from "../support/taskColumns.js";
import { renderTable } from "../terminal/table.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import { formatNumber } from "../terminal/format.js";

interface ListOptions extends CommandOptions, FilterOptions {
  readonly limit: number;
  readonly before?: string;
}

export function registerList(program: Command, run: RunCommand): void {
  const command = program
    .command("list")
    .description("list tasks, newest first")
    .option("-n, --limit <n>", "at most this many", integerParser(1, 1_000_000), 50)
    .option("--before <id>", "continue below this id", parseId);
  addFilterOptions(addTableOptions(command)).action((options: ListOptions) =>
    run((terminal) => list(terminal, options)),
  );
}

async function list(terminal: Terminal, options: ListOptions): Promise<number> {
  const { limit, before } = options;
  const { tasks, next } = await withTable(options, "list", ({ client, table: names }) =>
    listTasks(
      client,
      names,
      { filter: filterFromOptions(options), limit, before, characters: summaryLength },
      (searched) => {
        terminal.showProgress(`searched ${formatNumber(searched)} rows`);
        return false;
      },
    ),
  );
  terminal.showProgress(null);
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ tasks, before: next }, null, 2)}\n`);
    return 0;
  }
  const lines = renderTable(terminal, taskColumns, tasks);
  if (tasks.length > 0 || !terminal.isTerminal) terminal.write(lines.map((line) => `${line}\n`).join(""));
  if (!terminal.isTerminal) return 0;
  if (tasks.length === 0) terminal.write(before === undefined ? "no tasks\n" : "no more tasks\n");
  else if (next !== null) terminal.write(colourText(terminal, "grey", `more: --before ${next}\n`));
  return 0;
}

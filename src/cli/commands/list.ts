import type { Command } from "commander";
import { listTasks } from "../../tasks/queries/listTasks.js";
import type { TaskSummary } from "../../tasks/queries/taskSummary.js";
import { withTable } from "../support/openTable.js";
import {
  parseId,
  toFilter,
  integerParser,
  addFilterOptions,
  addTableOptions,
  type CommandOptions,
  type FilterOptions,
  type RunCommand,
} from "../support/options.js";
import { renderTable, type TableColumn } from "../terminal/table.js";
import { colourText, stateColour, type Terminal } from "../terminal/terminal.js";
import { formatDuration, formatNumber, formatTime } from "../terminal/format.js";

/** Number of characters of input, output and error that a summary contains. */
export const summaryLength = 1000;

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
    listTasks(client, names, { filter: toFilter(options), limit, before, characters: summaryLength }, (searched) => {
      terminal.showProgress(`searched ${formatNumber(searched)} rows`);
      return false;
    }),
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

const collapseWhitespace = (text: string): string => text.trim().replace(/\s+/g, " ");

const firstLine = (text: string | null): string | null => text?.split("\n", 1)[0] ?? null;

export const taskColumns: readonly TableColumn<TaskSummary>[] = [
  { title: "id", value: ({ id }) => id, alignRight: true },
  { title: "state", value: ({ state }) => state, colour: ({ state }) => stateColour(state) },
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "plan", value: ({ plan }) => plan, display: ({ plan }) => formatTime(plan) },
  {
    title: "took",
    value: ({ tookMs }) => (tookMs === null ? null : String(tookMs)),
    display: ({ tookMs }) => (tookMs === null ? "" : formatDuration(tookMs)),
    alignRight: true,
  },
  {
    title: "input",
    value: ({ input }) => input,
    display: ({ input }) => collapseWhitespace(input),
    flexible: true,
  },
  {
    title: "result",
    value: ({ error, output }) => error ?? output,
    display: ({ error, output }) => firstLine(error) ?? collapseWhitespace(output ?? ""),
    colour: ({ error }) => (error === null ? null : "red"),
    flexible: true,
  },
];

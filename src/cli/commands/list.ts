import type { Command } from "commander";
import { listTasks } from "../../tasks/queries/listTasks.js";
import type { TaskSummary } from "../../tasks/queries/taskSummary.js";
import { onTable } from "../support/openTable.js";
import type { CommandRun } from "../support/run.js";
import {
  parseId,
  toFilter,
  wholeNumber,
  withFilterOptions,
  withTableOptions,
  type CommandOptions,
  type FilterOptions,
} from "../support/options.js";
import { table, type TableColumn } from "../terminal/table.js";
import { coloured, stateColour, type Terminal } from "../terminal/terminal.js";
import { formatDuration, shownNumber, shownTime } from "../terminal/format.js";

/** Characters of input, output and error that a summary has. */
export const summaryLength = 1000;

interface ListOptions extends CommandOptions, FilterOptions {
  readonly limit: number;
  readonly before?: string;
}

export function declareList(program: Command, run: CommandRun): void {
  const command = program
    .command("list")
    .description("list tasks, the newest first")
    .option("-n, --limit <n>", "at most so many", wholeNumber(1, 1_000_000), 50)
    .option("--before <id>", "go on below this id", parseId);
  withFilterOptions(withTableOptions(command)).action((options: ListOptions) =>
    run((terminal) => list(terminal, options)),
  );
}

async function list(terminal: Terminal, options: ListOptions): Promise<number> {
  const { limit, before } = options;
  const { tasks, next } = await onTable(options, "list", ({ client, table: names }) =>
    listTasks(
      client,
      names,
      { filter: toFilter(options), limit, before, characters: summaryLength },
      (looked) => {
        terminal.progress(`looked through ${shownNumber(looked)} rows`);
        return false;
      },
    ),
  );
  terminal.progress(null);
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ tasks, before: next }, null, 2)}\n`);
    return 0;
  }
  const lines = table(terminal, taskColumns, tasks);
  if (tasks.length > 0 || !terminal.isTerminal)
    terminal.write(lines.map((line) => `${line}\n`).join(""));
  if (!terminal.isTerminal) return 0;
  if (tasks.length === 0) terminal.write(before === undefined ? "no tasks\n" : "no more tasks\n");
  else if (next !== null) terminal.write(coloured(terminal, "grey", `more: --before ${next}\n`));
  return 0;
}

/** Where the SQL begins to say something. */
export const oneLine = (text: string): string => text.trim().replace(/\s+/g, " ");

const firstLine = (text: string | null): string | null => text?.split("\n", 1)[0] ?? null;

export const taskColumns: readonly TableColumn<TaskSummary>[] = [
  { title: "id", value: ({ id }) => id, right: true },
  { title: "state", value: ({ state }) => state, colour: ({ state }) => stateColour(state) },
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "plan", value: ({ plan }) => plan, shown: ({ plan }) => shownTime(plan) },
  {
    title: "took",
    value: ({ tookMs }) => (tookMs === null ? null : String(tookMs)),
    shown: ({ tookMs }) => (tookMs === null ? "" : formatDuration(tookMs)),
    right: true,
  },
  {
    title: "input",
    value: ({ input }) => input,
    shown: ({ input }) => oneLine(input),
    flexible: true,
  },
  {
    title: "result",
    value: ({ error, output }) => error ?? output,
    shown: ({ error, output }) => firstLine(error) ?? oneLine(output ?? ""),
    colour: ({ error }) => (error === null ? null : "red"),
    flexible: true,
  },
];

import type { Command } from "commander";
import { exitCodes, PgTaskError } from "../../shared/errors.js";
import { changeTasks, type Change, type Changed } from "../../tasks/commands/changeTasks.js";
import type { TaskFilter } from "../../tasks/taskFilter.js";
import { changeText } from "../../tasks/commands/describeChange.js";
import { countTasks, idsOf } from "../../tasks/queries/matchingIds.js";
import { exitCode } from "../support/exitCodes.js";
import { onTable, type OpenTable } from "../support/openTable.js";
import {
  parseIds,
  toFilter,
  withFilterOptions,
  withTableOptions,
  type CommandOptions,
  type FilterOptions,
} from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { field, printableLine } from "../terminal/escape.js";
import { coloured, type Terminal } from "../terminal/terminal.js";
import { counted } from "../terminal/format.js";

/** Rows that one statement changes. */
const batch = 500;

const ids = ["<ids...>", "ids of tasks"] as const;

export function declareStop(program: Command, run: CommandRun): void {
  const command = program
    .command("stop")
    .description("stop tasks: one that waits does not run, one that runs is cancelled")
    .argument(...ids, parseIds);
  withTableOptions(command).action((given: readonly string[], options: CommandOptions) =>
    run((terminal) => changeIds(terminal, "stop", given, options)),
  );
}

export function declareRunNow(program: Command, run: CommandRun): void {
  const command = program
    .command("run-now")
    .description("plan tasks that wait for now; groups and pauses still hold")
    .argument(...ids, parseIds);
  withTableOptions(command).action((given: readonly string[], options: CommandOptions) =>
    run((terminal) => changeIds(terminal, "run-now", given, options)),
  );
}

export function declareDelete(program: Command, run: CommandRun): void {
  const command = program
    .command("delete")
    .description("delete tasks' rows")
    .argument(...ids, parseIds)
    .option("--running", "also those that run: they are cancelled");
  withTableOptions(command).action(
    (given: readonly string[], options: CommandOptions & { readonly running?: true }) =>
      run((terminal) =>
        changeIds(terminal, options.running ? "delete even running" : "delete", given, options),
      ),
  );
}

const endings = ["DONE", "FAIL", "GONE", "STOP"] as const;

interface RetryOptions extends CommandOptions, FilterOptions {
  readonly yes?: true;
}

export function declareRetry(program: Command, run: CommandRun): void {
  const command = program
    .command("retry")
    .description("let tasks that ended run again, in their own rows: by id, or all in some state")
    .argument("[ids...]", "ids of tasks", parseIds)
    .option("-y, --yes", "do not ask");
  withFilterOptions(withTableOptions(command), endings).action(
    (given: readonly string[], options: RetryOptions) =>
      run((terminal) => retry(terminal, given, options)),
  );
}

async function retry(
  terminal: Terminal,
  given: readonly string[],
  options: RetryOptions,
): Promise<number> {
  const filter = toFilter(options);
  const filtered = Object.keys(filter).length > 0;
  if (given.length > 0 && filtered) {
    throw new PgTaskError("USAGE", "expected ids or a filter, got both");
  }
  if (given.length > 0) return await changeIds(terminal, "retry", given, options);
  if (filter.states === undefined) {
    throw new PgTaskError(
      "USAGE",
      "expected ids, or --state with the states to retry, such as --state FAIL",
    );
  }
  return await onTable(options, "retry", (opened) =>
    retryFiltered(terminal, opened, filter, options),
  );
}

async function retryFiltered(
  terminal: Terminal,
  opened: OpenTable,
  filter: TaskFilter,
  options: RetryOptions,
): Promise<number> {
  const { client, table } = opened;
  const total = await countTasks(client, table, filter);
  if (total > 0 && terminal.canAsk && options.yes !== true) {
    const { database } = opened.entry.target;
    const question = `Retry ${counted(total, "task")} of ${table.qualified} in ${printableLine(database)}?`;
    if (!(await terminal.ask(question))) {
      terminal.note("nothing was changed\n");
      return exitCode.notAll;
    }
  }
  const newest = await idsOfAll(opened, filter);
  return report(terminal, "retry", await inBatches(terminal, opened, "retry", newest), options);
}

/** Those that are there now: what fails again meanwhile is not taken up once more. */
async function idsOfAll({ client, table }: OpenTable, filter: TaskFilter): Promise<string[]> {
  const found: string[] = [];
  for (let after: string | null = null; ;) {
    const next: string[] = await idsOf(client, table, { filter, limit: batch, after });
    found.push(...next);
    after = next.at(-1) ?? null;
    if (next.length < batch) return found;
  }
}

async function changeIds(
  terminal: Terminal,
  change: Change,
  given: readonly string[],
  options: CommandOptions,
): Promise<number> {
  const results = await onTable(options, change, (opened) =>
    inBatches(terminal, opened, change, [...new Set(given)]),
  );
  return report(terminal, change, results, options);
}

async function inBatches(
  terminal: Terminal,
  { client, table }: OpenTable,
  change: Change,
  all: readonly string[],
): Promise<Changed[]> {
  const results: Changed[] = [];
  for (let from = 0; from < all.length; from += batch) {
    if (all.length > batch) terminal.progress(`${change}: ${from} of ${all.length}`);
    results.push(...(await changeTasks(client, table, change, all.slice(from, from + batch))));
  }
  terminal.progress(null);
  return results;
}

/** Says what came of each id; 0 when all of it was done. */
function report(
  terminal: Terminal,
  change: Change,
  results: readonly Changed[],
  { json }: CommandOptions,
): number {
  const done = results.filter(({ outcome }) => outcome === "changed").length;
  if (json === true) {
    const shown = results.map((result) => ({ ...result, text: changeText(change, result) }));
    terminal.write(`${JSON.stringify({ changed: done, tasks: shown }, null, 2)}\n`);
  } else {
    for (const result of results) terminal.write(`${line(terminal, change, result)}\n`);
    if (terminal.isTerminal && results.length > 1) {
      terminal.write(`${counted(done, "task")} of ${results.length} changed\n`);
    }
    if (results.length === 0) terminal.note("no task fits\n");
  }
  if (done === results.length) return exitCode.done;
  // Nobody may do that here, whatever the id.
  return results.every(({ outcome }) => outcome === "failed") ? exitCodes.SCHEMA : exitCode.notAll;
}

function line(terminal: Terminal, change: Change, result: Changed): string {
  const text = changeText(change, result);
  if (!terminal.isTerminal) return [result.id, result.outcome, text].map(field).join("\t");
  const colour = result.outcome === "changed" ? null : "yellow";
  return coloured(terminal, colour, `${result.id}  ${printableLine(text)}`);
}

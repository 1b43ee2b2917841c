import type { TaskFilter } from "../../tasks/types.js";
import type { Command } from "commander";
import { exitCodes } from "../../shared/errorCodes.js";
import { PgTaskError } from "../../shared/errors.js";
import { finalStates } from "../../shared/taskState.js";
import { changeInBatches } from "../../tasks/commands/changeInBatches.js";
import type { Change, ChangeResult } from "../../tasks/commands/changeTasks.js";
import { countMatching, readMatchingIds } from "../../tasks/taskFilter.js";
import { describeChange } from "../../tasks/commands/describeChange.js";
import { confirmChange } from "../support/confirmChange.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import {
  parseIds,
  filterFromOptions,
  addFilterOptions,
  addTableOptions,
  type CommandOptions,
  type FilterOptions,
  type RunCommand,
} from "../support/options.js";
import { copyField } from "../terminal/copyField.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import { formatCount } from "../terminal/format.js";

/** Number of ids that one statement reads. */
const batchSize = 500;

const idsArgument = ["<ids...>", "task ids"] as const;

export function registerStop(program: Command, run: RunCommand): void {
  const command = program
    .command("stop")
    .description("stop tasks: cancel running ones, keep waiting ones from running")
    .argument(...idsArgument, parseIds);
  addTableOptions(command).action((given: readonly string[], options: CommandOptions) =>
    run((terminal) => changeIds(terminal, "stop", given, options)),
  );
}

export function registerRunNow(program: Command, run: RunCommand): void {
  const command = program
    .command("run-now")
    .description("plan waiting tasks for now; group limits and pauses still apply")
    .argument(...idsArgument, parseIds);
  addTableOptions(command).action((given: readonly string[], options: CommandOptions) =>
    run((terminal) => changeIds(terminal, "run-now", given, options)),
  );
}

export function registerDelete(program: Command, run: RunCommand): void {
  const command = program
    .command("delete")
    .description("delete tasks")
    .argument(...idsArgument, parseIds)
    .option("--running", "also running ones, which are cancelled");
  addTableOptions(command).action((given: readonly string[], options: CommandOptions & { readonly running?: true }) =>
    run((terminal) => changeIds(terminal, options.running ? "delete even running" : "delete", given, options)),
  );
}

interface RetryOptions extends CommandOptions, FilterOptions {
  readonly yes?: true;
}

export function registerRetry(program: Command, run: RunCommand): void {
  const command = program
    .command("retry")
    .description("run finished tasks again in their own rows: by id, or all in given states")
    .argument("[ids...]", "task ids", parseIds)
    .option("-y, --yes", "do not ask");
  addFilterOptions(addTableOptions(command), finalStates).action((given: readonly string[], options: RetryOptions) =>
    run((terminal) => retry(terminal, given, options)),
  );
}

async function retry(terminal: Terminal, given: readonly string[], options: RetryOptions): Promise<number> {
  const filter = filterFromOptions(options);
  const filtered = Object.keys(filter).length > 0;
  if (given.length > 0 && filtered) {
    throw new PgTaskError("USAGE", "expected ids or a filter, got both");
  }
  if (given.length > 0) return await changeIds(terminal, "retry", given, options);
  if (filter.states === undefined) {
    throw new PgTaskError("USAGE", "expected ids or --state, such as --state FAIL");
  }
  return await withTable(options, "retry", (opened) => retryFiltered(terminal, opened, filter, options));
}

async function retryFiltered(
  terminal: Terminal,
  opened: OpenTable,
  filter: TaskFilter,
  options: RetryOptions,
): Promise<number> {
  const { client, table } = opened;
  const total = await countMatching(client, table, filter);
  const { database } = opened.entry.target;
  const question = `Retry ${formatCount(total, "task")} of ${table.qualified} in ${printableLine(database)}?`;
  if (total > 0 && !(await confirmChange(terminal, options.yes === true, question))) return commandExitCodes.notAll;
  const newest = await readAllIds(opened, filter);
  return printResults(terminal, "retry", await applyChange(terminal, opened, "retry", newest), options);
}

/**
 * Reads the ids of all tasks that match now. All ids are read before the first retry, because a retried task can fail
 * again. If ids were read later, the task would then match and be retried a second time.
 */
async function readAllIds({ client, table }: OpenTable, filter: TaskFilter): Promise<string[]> {
  const found: string[] = [];
  for (let after: string | null = null; ;) {
    const next: string[] = await readMatchingIds(client, table, {
      filter,
      limit: batchSize,
      after,
    });
    found.push(...next);
    after = next.at(-1) ?? null;
    if (next.length < batchSize) return found;
  }
}

export async function changeIds(
  terminal: Terminal,
  kind: Change,
  given: readonly string[],
  options: CommandOptions,
): Promise<number> {
  const results = await withTable(options, kind, (opened) => applyChange(terminal, opened, kind, [...new Set(given)]));
  return printResults(terminal, kind, results, options);
}

async function applyChange(
  terminal: Terminal,
  { client, table }: OpenTable,
  kind: Change,
  all: readonly string[],
): Promise<ChangeResult[]> {
  const results = await changeInBatches(client, table, kind, all, (done) =>
    terminal.showProgress(`${kind}: ${done} of ${all.length}`),
  );
  terminal.showProgress(null);
  return results;
}

/**
 * Prints the result for each id.
 *
 * @returns the exit code, 0 if all tasks were changed
 */
function printResults(
  terminal: Terminal,
  change: Change,
  results: readonly ChangeResult[],
  { json }: CommandOptions,
): number {
  const done = results.filter(({ outcome }) => outcome === "changed").length;
  if (json === true) {
    const shown = results.map((result) => ({ ...result, text: describeChange(change, result) }));
    terminal.write(`${JSON.stringify({ changed: done, tasks: shown }, null, 2)}\n`);
  } else {
    for (const result of results) terminal.write(`${formatResult(terminal, change, result)}\n`);
    if (terminal.isTerminal && results.length > 1) {
      terminal.write(`${formatCount(done, "task")} of ${results.length} changed\n`);
    }
    if (results.length === 0) terminal.writeError("no matching tasks\n");
  }
  if (done === results.length) return commandExitCodes.done;
  // The server reported an error for every task.
  return results.every(({ outcome }) => outcome === "failed") ? exitCodes.SCHEMA : commandExitCodes.notAll;
}

function formatResult(terminal: Terminal, change: Change, result: ChangeResult): string {
  const text = describeChange(change, result);
  if (!terminal.isTerminal) return [result.id, result.outcome, text].map(copyField).join("\t");
  const colour = result.outcome === "changed" ? null : "yellow";
  return colourText(terminal, colour, `${result.id}  ${printableLine(text)}`);
}

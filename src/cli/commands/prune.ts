import type { Command } from "commander";
import { countOld, moment, pruneStep } from "../../tasks/commands/pruneTasks.js";
import { exitCode } from "../support/exitCodes.js";
import { onTable, type OpenTable } from "../support/openTable.js";
import {
  toFilter,
  withFilterOptions,
  withTableOptions,
  type CommandOptions,
  type FilterOptions,
} from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { printableLine } from "../terminal/escape.js";
import type { Terminal } from "../terminal/terminal.js";
import { counted, shownNumber } from "../terminal/format.js";

interface PruneOptions extends CommandOptions, FilterOptions {
  readonly older: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

export function declarePrune(program: Command, run: CommandRun): void {
  const command = program
    .command("prune")
    .description("delete tasks that ended some time ago, in small batches")
    .requiredOption("--older <interval>", "that ended longer ago than this, such as '30 days'")
    .option("--dry-run", "only say how many there are")
    .option("-y, --yes", "do not ask");
  withFilterOptions(withTableOptions(command), ["DONE", "FAIL", "GONE", "STOP"]).action(
    (options: PruneOptions) => run((terminal) => prune(terminal, options)),
  );
}

async function prune(terminal: Terminal, options: PruneOptions): Promise<number> {
  return await onTable(options, "prune", async (opened) => {
    const { client, table } = opened;
    const before = await moment(client, options.older);
    const asks = terminal.canAsk && options.yes !== true;
    if (options.dryRun === true || asks) {
      const found = await countOld(client, table, before, toFilter(options));
      if (options.dryRun === true) return say(terminal, options, { found });
      const question = `Delete ${counted(found, "task")} of ${printableLine(table.qualified)} that ended before ${before}?`;
      if (found > 0 && !(await terminal.ask(question))) {
        terminal.note("nothing was deleted\n");
        return exitCode.notAll;
      }
    }
    return await remove(terminal, opened, options, before);
  });
}

async function remove(
  terminal: Terminal,
  { client, table }: OpenTable,
  options: PruneOptions,
  before: string,
): Promise<number> {
  let deleted = 0;
  let locked = 0;
  for (let after: string | null = null; ;) {
    const step = await pruneStep(client, table, before, toFilter(options), after);
    deleted += step.deleted;
    locked += step.locked;
    after = step.next;
    if (after === null) break;
    terminal.progress(`${shownNumber(deleted)} deleted`);
  }
  terminal.progress(null);
  return say(terminal, options, { deleted, locked });
}

function say(
  terminal: Terminal,
  { json }: PruneOptions,
  result: { readonly found: number } | { readonly deleted: number; readonly locked: number },
): number {
  const left = "locked" in result ? result.locked : 0;
  if (json === true) terminal.write(`${JSON.stringify(result)}\n`);
  else if ("found" in result) terminal.write(`${counted(result.found, "task")} would be deleted\n`);
  else {
    const rest = left === 0 ? "" : `, ${counted(left, "row")} locked by somebody left`;
    terminal.write(`${counted(result.deleted, "task")} deleted${rest}\n`);
  }
  return left === 0 ? exitCode.done : exitCode.notAll;
}

import { countPrunable, readPruneCutoff, pruneBatch } from "../../tasks/commands/pruneTasks.js";
import { confirmChange, type Terminal } from "../terminal/terminal.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import { filterFromOptions, type CommandOptions, type FilterOptions } from "../support/options.js";
import { printableLine } from "../../shared/printable.js";
import { formatCount, formatNumber } from "../terminal/format.js";

interface PruneOptions extends CommandOptions, FilterOptions {
  readonly older: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

export async function prune(terminal: Terminal, options: PruneOptions): Promise<number> {
  return await withTable(terminal, options, "prune", async (opened) => {
    const { client, table } = opened;
    const cutoff = await readPruneCutoff(client, options.older);
    if (options.dryRun === true || options.yes !== true) {
      const found = await countPrunable(client, table, cutoff, filterFromOptions(options));
      if (options.dryRun === true) return printResult(terminal, options, { found });
      const question = `Delete ${formatCount(found, "task")} of ${printableLine(table.qualified)} that ended before ${cutoff}?`;
      if (found > 0 && !(await confirmChange(terminal, options.yes === true, question))) return commandExitCodes.notAll;
    }
    return await deleteInBatches(terminal, opened, options, cutoff);
  });
}

async function deleteInBatches(
  terminal: Terminal,
  { client, table }: OpenTable,
  options: PruneOptions,
  cutoff: string,
): Promise<number> {
  let deleted = 0;
  let locked = 0;
  for (let after: string | null = null; ;) {
    const step = await pruneBatch(client, table, cutoff, filterFromOptions(options), after);
    deleted += step.deleted;
    locked += step.locked;
    after = step.next;
    if (after === null) break;
    terminal.showProgress(`${formatNumber(deleted)} deleted`);
  }
  terminal.showProgress(null);
  return printResult(terminal, options, { deleted, locked });
}

function printResult(
  terminal: Terminal,
  { json }: PruneOptions,
  result: { readonly found: number } | { readonly deleted: number; readonly locked: number },
): number {
  const left = "locked" in result ? result.locked : 0;
  if (json === true) terminal.write(`${JSON.stringify(result)}\n`);
  else if ("found" in result) terminal.write(`${formatCount(result.found, "task")} would be deleted\n`);
  else {
    const rest = left === 0 ? "" : `, ${formatCount(left, "locked row")} skipped`;
    terminal.write(`${formatCount(result.deleted, "task")} deleted${rest}\n`);
  }
  return left === 0 ? commandExitCodes.done : commandExitCodes.notAll;
}

import type { Command } from "commander";
import { commands } from "./commands/index.js";
import { filterOptions, jsonOption, refuseRepeated, tableOptions } from "./support/options.js";
import type { Terminal } from "./terminal/terminal.js";

/** Runs a command's action on the terminal of the process. The number that the action returns is the exit code. */
export type RunCommand = (action: (terminal: Terminal) => Promise<number>) => Promise<void>;

export function registerCommands(program: Command, run: RunCommand): void {
  for (const [name, row] of Object.entries(commands)) {
    const { summary, aliases = [], examples, notes, table = false, filter } = row;
    const command = program
      .command(name, { hidden: summary === undefined })
      .description(summary ?? "")
      .aliases(aliases);
    for (const each of row.arguments ?? []) command.addArgument(each);
    const options = [
      ...(row.options ?? []),
      ...(table ? [...tableOptions(), jsonOption()] : []),
      ...(filter === undefined ? [] : filterOptions(filter)),
    ];
    for (const each of options) command.addOption(each);
    if (notes !== undefined) command.addHelpText("after", `\n${notes}`);
    if (examples.length > 0)
      command.addHelpText("after", `\nExamples:\n${examples.map((example) => `  pg-task ${example}`).join("\n")}`);
    refuseRepeated(command);
    command.action((...given: unknown[]) =>
      run(async (terminal) => await Reflect.apply(await row.load(), undefined, [terminal, ...given])),
    );
  }
}

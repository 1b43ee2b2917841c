import type { Command } from "commander";
import { errorKinds, exitCodes } from "../../shared/errors.js";
import { exitCode } from "../support/exitCodes.js";
import { chooseEntry, loadForCommand, matchingEntries } from "../support/openTable.js";
import { withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import type { Terminal } from "../terminal/terminal.js";
import { readStatus } from "../status/readStatus.js";
import { statusLines } from "../status/formatStatus.js";

export function declareStatus(program: Command, run: CommandRun): void {
  const command = program
    .command("status")
    .description("show who works, what waits and how fast it goes, for each table");
  withTableOptions(command).action((options: CommandOptions) =>
    run((terminal) => status(terminal, options)),
  );
}

async function status(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(options);
  const entries = matchingEntries(configuration, options);
  if (entries.length === 0) chooseEntry(configuration, options);
  const found = await readStatus(configuration, entries);
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else terminal.write(`${statusLines(terminal, found).join("\n")}\n`);
  const errors = [found.error, ...found.tables.map(({ error }) => error)];
  const first = errors.find((error) => error !== null);
  return first === undefined || first === null
    ? exitCode.done
    : exitCodes[errorKinds[first.code].family];
}

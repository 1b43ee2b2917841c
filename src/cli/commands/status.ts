import { errorDefinitions, exitCodes } from "../../shared/errorCodes.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { chooseEntry, findEntries, loadForCommand, optionsFor } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";
import { readStatus, formatStatus } from "../status.js";

export async function showStatus(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  const entries = findEntries(configuration, options);
  if (entries.length === 0) chooseEntry(terminal, configuration, options);
  const found = await readStatus(configuration, entries);
  const selecting = entries.map((entry) => optionsFor(configuration, entry, options));
  const lines =
    options.json === true ? [JSON.stringify(found, null, 2)] : formatStatus(terminal, found, options, selecting);
  terminal.write(`${lines.join("\n")}\n`);
  const errors = [found.error, ...found.tables.map(({ error }) => error)];
  const first = errors.find((error) => error !== null);
  return first === undefined || first === null ? commandExitCodes.done : exitCodes[errorDefinitions[first.code].family];
}

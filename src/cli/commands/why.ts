import type { Command } from "commander";
import { commandExitCodes } from "../support/exitCodes.js";
import { withTable } from "../support/openTable.js";
import { parseId, addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import { readReasons } from "../support/readReasons.js";
import { copyField } from "../terminal/copyField.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Terminal } from "../terminal/terminal.js";

export function registerWhy(program: Command, run: RunCommand): void {
  const command = program
    .command("why")
    .aliases(["explain-plan", "explain"])
    .description("explain why a task is not running")
    .argument("<id>", "the task's id", parseId);
  addTableOptions(command).action((id: string, options: CommandOptions) =>
    run((terminal) => explain(terminal, id, options)),
  );
}

async function explain(terminal: Terminal, id: string, options: CommandOptions): Promise<number> {
  const reasons = await withTable(options, "why", (opened) => readReasons(opened, id));
  if (reasons === null) {
    terminal.writeError(`pg-task: no task ${id}\n`);
    return commandExitCodes.notAll;
  }
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ id, reasons }, null, 2)}\n`);
  } else if (terminal.isTerminal) {
    for (const { text, remedy } of reasons) {
      terminal.write(`${printableLine(text)}\n`);
      if (remedy !== undefined) terminal.write(`  ${colourText(terminal, "grey", printableLine(remedy))}\n`);
    }
  } else {
    for (const { code, text, remedy } of reasons) {
      terminal.write(`${[code, text, remedy ?? null].map(copyField).join("\t")}\n`);
    }
  }
  return 0;
}

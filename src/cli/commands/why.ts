import { commandExitCodes } from "../support/exitCodes.js";
import { readOneTask, readReasons, type OneTaskOptions } from "../support/oneTask.js";
import { copyField } from "../terminal/format.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Terminal } from "../terminal/terminal.js";

export async function why(terminal: Terminal, given: string | undefined, options: OneTaskOptions): Promise<number> {
  const localTimes = terminal.isTerminal && options.json !== true;
  const explained = await readOneTask(terminal, "why", given, options, (opened, id) =>
    readReasons(opened, id, { localTimes }),
  );
  if (explained === null) return commandExitCodes.notAll;
  const { id, found: reasons } = explained;
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

import { commandExitCodes } from "../support/exitCodes.js";
import { withTable } from "../support/openTable.js";
import { describeMissing, readGivenId, requireIdOrKey, type OneTaskOptions, readReasons } from "../support/oneTask.js";
import { copyField } from "../terminal/format.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Terminal } from "../terminal/terminal.js";

export async function why(terminal: Terminal, given: string | undefined, options: OneTaskOptions): Promise<number> {
  requireIdOrKey(given, options);
  const isForTerminal = terminal.isTerminal && options.json !== true;
  const found = await withTable(terminal, options, "why", async (opened) => {
    const id = await readGivenId(opened, given, options);
    const reasons = id === null ? null : await readReasons(opened, id, { localTimes: isForTerminal });
    return reasons === null ? null : { id, reasons };
  });
  if (found === null) {
    terminal.writeError(`pg-task: ${describeMissing(given, options)}\n`);
    return commandExitCodes.notAll;
  }
  const { id, reasons } = found;
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

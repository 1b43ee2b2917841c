import { jsonText, printableLine } from "../../shared/printable.js";
import { acceptCopy, type StoppedTasks } from "../../tasks/copies.js";
import { withTable } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { formatCount } from "../terminal/format.js";
import type { Terminal } from "../terminal/terminal.js";

interface AcceptCopyOptions extends CommandOptions {
  readonly stopSchedules?: true;
  readonly stopAll?: true;
}

export async function accept(terminal: Terminal, name: string | undefined, given: AcceptCopyOptions): Promise<number> {
  const options = name === undefined ? given : { ...given, table: name };
  const stop: StoppedTasks = options.stopAll ? "all" : options.stopSchedules ? "schedules" : "none";
  return await withTable(terminal, options, "accept-copy", async ({ client, table, entry }) => {
    const result = await acceptCopy(client, table, entry, stop);
    if (options.json === true) {
      const { reason, stopped, running } = result;
      const json = { table: table.qualified, accepted: reason !== null, reason, stopped, running };
      terminal.write(`${jsonText(json)}\n`);
    } else terminal.write(`${printableLine(table.qualified)} ${describe(result)}\n`);
    return 0;
  });
}

function describe({ reason, stopped, running }: Awaited<ReturnType<typeof acceptCopy>>): string {
  if (reason === null) return "is no copy, nothing was changed";
  const recovered =
    running === 0 ? "" : `; ${formatCount(running, "task")} that the original was running will run again or be settled`;
  return `is at home here now; ${formatCount(stopped, "task")} stopped${recovered}`;
}

import { Option, type Command } from "commander";
import { printableLine } from "../../shared/printable.js";
import { acceptCopy, type AcceptedCopy, type StoppedTasks } from "../../tasks/commands/acceptCopy.js";
import { withTable } from "../support/openTable.js";
import { addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import { formatCount } from "../terminal/format.js";
import type { Terminal } from "../terminal/terminal.js";

interface AcceptCopyOptions extends CommandOptions {
  readonly stopSchedules?: true;
  readonly stopAll?: true;
}

export function registerAcceptCopy(program: Command, run: RunCommand): void {
  const command = program
    .command("accept-copy")
    .description("let the tasks of a copied table run here; until then, nothing in a copy starts")
    .argument("[table]", "same as --table")
    .addOption(new Option("--stop-schedules", "stop the waiting runs of all schedules first").conflicts("stopAll"))
    .option("--stop-all", "stop all waiting and running tasks first");
  addTableOptions(command).action((name: string | undefined, options: AcceptCopyOptions) =>
    run((terminal) => accept(terminal, name === undefined ? options : { ...options, table: name })),
  );
}

async function accept(terminal: Terminal, options: AcceptCopyOptions): Promise<number> {
  const stop: StoppedTasks = options.stopAll ? "all" : options.stopSchedules ? "schedules" : "none";
  return await withTable(terminal, options, "accept-copy", async ({ client, table, entry }) => {
    const result = await acceptCopy(client, table, entry, stop);
    const name = printableLine(table.qualified);
    if (options.json === true) {
      const { reason, stopped, running } = result;
      const json = { table: table.qualified, accepted: reason !== null, reason, stopped, running };
      terminal.write(`${JSON.stringify(json, null, 2)}\n`);
    } else terminal.write(`${name} ${describe(result)}\n`);
    return 0;
  });
}

function describe({ reason, stopped, running }: AcceptedCopy): string {
  if (reason === null) return "is no copy, nothing was changed";
  const recovered =
    running === 0 ? "" : `; ${formatCount(running, "task")} that the original was running will run again or be settled`;
  return `is at home here now; ${formatCount(stopped, "task")} stopped${recovered}`;
}

import type { Command } from "commander";
import { readGroups, thoroughLimits } from "../../tasks/queries/groups.js";
import { groupColumns } from "../support/groupColumns.js";
import { withTable } from "../support/openTable.js";
import { integerParser, addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import { renderTable } from "../terminal/table.js";
import type { Terminal } from "../terminal/terminal.js";

interface GroupsOptions extends CommandOptions {
  readonly limit: number;
}

export function registerGroups(program: Command, run: RunCommand): void {
  const command = program
    .command("groups")
    .description("list groups that have running or waiting tasks or are paused")
    .option("-n, --limit <n>", "at most this many", integerParser(1, 1_000_000), 100);
  addTableOptions(command).action((options: GroupsOptions) => run((terminal) => listGroups(terminal, options)));
}

async function listGroups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await withTable(terminal, options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false, limits: thoroughLimits }),
  );
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal) terminal.write("no running or waiting tasks\n");
  else
    terminal.write(
      renderTable(terminal, groupColumns(found), found.groups)
        .map((line) => `${line}\n`)
        .join(""),
    );
  if (!found.complete && options.json !== true) {
    terminal.writeError("many tasks wait: due and waiting are estimates, small groups may be missing\n");
  }
  return 0;
}

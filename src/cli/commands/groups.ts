import { readGroups, thoroughLimits } from "../../tasks/queries/groups.js";
import { groupColumns } from "../support/columns.js";
import { withTable } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { renderTable } from "../terminal/table.js";
import type { Terminal } from "../terminal/terminal.js";

interface GroupsOptions extends CommandOptions {
  readonly limit: number;
}

export async function listGroups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await withTable(terminal, options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false, limits: thoroughLimits }),
  );
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal) terminal.write("no running or waiting tasks\n");
  else for (const line of renderTable(terminal, groupColumns(found), found.groups)) terminal.write(`${line}\n`);
  if (!found.complete && options.json !== true) {
    terminal.writeError("many tasks wait: due and waiting are estimates, small groups may be missing\n");
  }
  return 0;
}

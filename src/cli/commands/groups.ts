import type { Command } from "commander";
import { readGroups, thoroughLimits, type Group, type Groups } from "../../tasks/queries/groups.js";
import { withTable } from "../support/openTable.js";
import { integerParser, addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import { renderTable, type TableColumn } from "../terminal/table.js";
import type { Terminal } from "../terminal/terminal.js";
import { formatTime } from "../terminal/format.js";

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

/** Returns the columns of the table of groups. Unless all rows were read, the counts are marked as estimates. */
export const groupTableColumns = ({ complete }: Groups): readonly TableColumn<Group>[] => [
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "running", value: ({ running }) => String(running), alignRight: true },
  countColumn("due", ({ due }) => due, complete),
  countColumn("waiting", ({ waiting }) => waiting, complete),
  {
    title: "oldest",
    value: ({ oldest }) => oldest,
    display: ({ oldest }) => formatTime(oldest),
  },
  {
    title: "paused",
    value: ({ paused }) => String(paused),
    display: ({ paused }) => (paused ? "paused" : ""),
    colour: () => "yellow",
  },
];

const countColumn = (title: string, count: (group: Group) => number, exact: boolean): TableColumn<Group> => ({
  title,
  value: (group) => String(count(group)),
  display: (group) => `${exact || count(group) === 0 ? "" : "about "}${count(group)}`,
  alignRight: true,
});

async function listGroups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await withTable(options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false, limits: thoroughLimits }),
  );
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal) terminal.write("no running or waiting tasks\n");
  else
    terminal.write(
      renderTable(terminal, groupTableColumns(found), found.groups)
        .map((line) => `${line}\n`)
        .join(""),
    );
  if (!found.complete && options.json !== true) {
    terminal.writeError("many tasks wait: due and waiting are estimates, small groups may be missing\n");
  }
  return 0;
}

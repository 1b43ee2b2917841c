import type { Command } from "commander";
import { readGroups, thoroughly, type Group, type Groups } from "../../tasks/queries/groups.js";
import { onTable } from "../support/openTable.js";
import { wholeNumber, withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { table, type TableColumn } from "../terminal/table.js";
import type { Terminal } from "../terminal/terminal.js";
import { shownTime } from "../terminal/format.js";

interface GroupsOptions extends CommandOptions {
  readonly limit: number;
}

export function declareGroups(program: Command, run: CommandRun): void {
  const command = program
    .command("groups")
    .description("list groups in which tasks run or wait, or that are paused")
    .option("-n, --limit <n>", "at most so many", wholeNumber(1, 1_000_000), 100);
  withTableOptions(command).action((options: GroupsOptions) =>
    run((terminal) => groups(terminal, options)),
  );
}

/** Of groups whose numbers are estimates where not all was looked at. */
export const tableColumns = ({ complete }: Groups): readonly TableColumn<Group>[] => [
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "running", value: ({ running }) => String(running), right: true },
  countColumn("due", ({ due }) => due, complete),
  countColumn("waiting", ({ waiting }) => waiting, complete),
  {
    title: "oldest",
    value: ({ oldest }) => oldest,
    shown: ({ oldest }) => shownTime(oldest),
  },
  {
    title: "paused",
    value: ({ paused }) => String(paused),
    shown: ({ paused }) => (paused ? "paused" : ""),
    colour: () => "yellow",
  },
];

const countColumn = (
  title: string,
  count: (group: Group) => number,
  exact: boolean,
): TableColumn<Group> => ({
  title,
  value: (group) => String(count(group)),
  shown: (group) => `${exact || count(group) === 0 ? "" : "about "}${count(group)}`,
  right: true,
});

async function groups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await onTable(options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false, effort: thoroughly }),
  );
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal)
    terminal.write("nothing runs or waits\n");
  else
    terminal.write(
      table(terminal, tableColumns(found), found.groups)
        .map((line) => `${line}\n`)
        .join(""),
    );
  if (!found.complete && options.json !== true) {
    terminal.note(
      "so much waits that due and waiting are estimates; small groups may be missing\n",
    );
  }
  return 0;
}

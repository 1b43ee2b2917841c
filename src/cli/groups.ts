import type { Command } from "commander";
import { readGroups, type Group } from "../tasks/groups.js";
import { onTable } from "./openTable.js";
import { wholeNumber, withTableOptions, type CommandOptions } from "./options.js";
import type { Run } from "./run.js";
import { table, type Column } from "./screen/table.js";
import type { Terminal } from "./screen/terminal.js";
import { shownTime } from "./screen/words.js";

interface GroupsOptions extends CommandOptions {
  readonly limit: number;
}

export function declareGroups(program: Command, run: Run): void {
  const command = program
    .command("groups")
    .description("list groups in which tasks run or wait, or that are paused")
    .option("-n, --limit <n>", "at most so many", wholeNumber(1, 1_000_000), 100);
  withTableOptions(command).action((options: GroupsOptions) =>
    run((terminal) => groups(terminal, options)),
  );
}

export const groupColumns: readonly Column<Group>[] = [
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "running", value: ({ running }) => String(running), right: true },
  { title: "due", value: ({ due }) => String(due), right: true },
  { title: "waiting", value: ({ waiting }) => String(waiting), right: true },
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

async function groups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await onTable(options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false }),
  );
  if (options.json === true) terminal.write(`${JSON.stringify(found, null, 2)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal)
    terminal.write("nothing runs or waits\n");
  else
    terminal.write(
      table(terminal, groupColumns, found.groups)
        .map((line) => `${line}\n`)
        .join(""),
    );
  if (!found.complete && options.json !== true) {
    terminal.note("more waits than was counted: the numbers of due and waiting are too low\n");
  }
  return 0;
}

import type { Command } from "commander";
import { pauseTasks, readPauses, resumeTasks } from "../../tasks/commands/pauses.js";
import { onTable } from "../support/openTable.js";
import { withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { printableLine } from "../terminal/escape.js";
import type { Terminal } from "../terminal/terminal.js";

interface PauseOptions extends CommandOptions {
  readonly group?: string;
  readonly reason?: string;
}

const which = ["[table]", "the table, as --table"] as const;

export function declarePause(program: Command, run: CommandRun): void {
  const command = program
    .command("pause")
    .description("let no more tasks of a table or group start; those that run go on")
    .argument(...which)
    .option("-g, --group <group>", "only this group")
    .option("--reason <text>", "why, for others to read");
  withTableOptions(command).action((name: string | undefined, options: PauseOptions) =>
    run((terminal) => pause(terminal, withTable(name, options))),
  );
}

export function declareResume(program: Command, run: CommandRun): void {
  const command = program
    .command("resume")
    .description("let tasks of a table or group start again")
    .argument(...which)
    .option("-g, --group <group>", "only this group");
  withTableOptions(command).action((name: string | undefined, options: PauseOptions) =>
    run((terminal) => resume(terminal, withTable(name, options))),
  );
}

const withTable = (table: string | undefined, options: PauseOptions): PauseOptions =>
  table === undefined ? options : { ...options, table };

async function pause(terminal: Terminal, options: PauseOptions): Promise<number> {
  const { group = null, reason = null } = options;
  return await onTable(options, "pause", async ({ client, table }) => {
    const changed = await pauseTasks(client, table, group, reason);
    const words = changed ? "paused" : "was paused already";
    return say(terminal, options, table.qualified, { changed, paused: true }, words);
  });
}

async function resume(terminal: Terminal, options: PauseOptions): Promise<number> {
  const { group = null } = options;
  return await onTable(options, "resume", async ({ client, table }) => {
    const changed = await resumeTasks(client, table, group);
    const left = await readPauses(client, table);
    const still = left.some((each) => each.group === null || each.group === group);
    const words = changed ? "goes on" : "was not paused";
    const rest = group !== null && still ? "; the whole table is paused" : "";
    const others = left.filter((each) => each.group !== null).length;
    const groups =
      group === null && others > 0 ? `; groups that are paused themselves: ${others}` : "";
    return say(
      terminal,
      options,
      table.qualified,
      { changed, paused: still },
      `${words}${rest}${groups}`,
    );
  });
}

/** What was asked for holds now, whether it did before or not. */
function say(
  terminal: Terminal,
  { group, json }: PauseOptions,
  table: string,
  result: { readonly changed: boolean; readonly paused: boolean },
  words: string,
): number {
  if (json === true) {
    terminal.write(`${JSON.stringify({ table, group: group ?? null, ...result }, null, 2)}\n`);
    return 0;
  }
  const what = group === undefined ? table : `group ${JSON.stringify(group)} of ${table}`;
  terminal.write(`${printableLine(what)} ${words}\n`);
  return 0;
}

import type { Command } from "commander";
import { taskStates } from "../shared/taskState.js";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** From where jobs can be imported. */
export const sources = ["pg_cron", "pgagent", "pg_timetable", "pgpro", "crontab", "ics"] as const;

/** The name of the command that the completion scripts call, and what it completes. The help does not list it. */
export const completeValuesName = "complete-values";
export const valueKinds = ["table", "entry"] as const;
export type ValueKind = (typeof valueKinds)[number];

/** A command as the completion scripts and the manual page show it. */
export interface CommandDefinition {
  readonly names: readonly string[];
  readonly description: string;
  /** Its arguments as in the help, such as `<id>` or `[ids...]`. */
  readonly usage: string;
  readonly choices: readonly string[];
  readonly options: readonly OptionDefinition[];
}

export interface OptionDefinition {
  readonly flags: string;
  readonly names: readonly string[];
  readonly description: string;
  /** The words that its value consists of, with commas between them. Empty unless `value` is "states". */
  readonly words: readonly string[];
  /** What the value is, or null if the option takes none. */
  readonly value: "path" | "table" | "entry" | "states" | "other" | null;
}

export function commandDefinitions(program: Command): readonly CommandDefinition[] {
  const visible = program.createHelp().visibleCommands(program);
  const named = program.commands.filter((command) => visible.includes(command));
  return named.map((command) => ({
    names: [command.name(), ...command.aliases()],
    description: command.description(),
    usage: command.registeredArguments.map((argument) => argumentText(argument)).join(" "),
    choices: command.registeredArguments[0]?.argChoices ?? [],
    options: [
      ...command.options.map(({ flags, short, long, description, required, optional }) => ({
        flags,
        names: [short, long].flatMap((name) => name ?? []),
        description,
        words: flags.endsWith("<states>") ? taskStates.filter((state) => description.includes(state)) : [],
        value: valueOf(flags, required || optional),
      })),
      { flags: "-h, --help", names: ["-h", "--help"], description: "display help for command", words: [], value: null },
    ],
  }));
}

function argumentText(argument: { name: () => string; required: boolean; variadic: boolean }): string {
  const name = `${argument.name()}${argument.variadic ? "..." : ""}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}

function valueOf(flags: string, takesValue: boolean): OptionDefinition["value"] {
  if (!takesValue) return null;
  if (/<(?:file|dir)>$/.test(flags)) return "path";
  const known = (["table", "entry", "states"] as const).find((name) => flags.endsWith(` <${name}>`));
  return known ?? "other";
}

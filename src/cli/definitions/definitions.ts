import type { Command } from "commander";

/** A command as the completion scripts and the manual page show it. */
export interface CommandDefinition {
  /** Its name, followed by its aliases. */
  readonly names: readonly string[];
  readonly description: string;
  /** Its arguments as in the help, such as `<id>` or `[ids...]`. */
  readonly usage: string;
  readonly options: readonly OptionDefinition[];
}

export interface OptionDefinition {
  /** As in the help, such as `-c, --config <file>`. */
  readonly flags: string;
  /** With dashes, the long name last. */
  readonly names: readonly string[];
  readonly description: string;
  /** What the value is, or null if the option takes none. */
  readonly value: "path" | "other" | null;
}

/** Returns the definitions of all commands, in the order of the help. */
export function commandDefinitions(program: Command): readonly CommandDefinition[] {
  return program.commands.map((command) => ({
    names: [command.name(), ...command.aliases()],
    description: command.description(),
    usage: command.registeredArguments.map((argument) => argumentText(argument)).join(" "),
    options: [
      ...command.options.map(({ flags, short, long, description, required, optional }) => ({
        flags,
        names: [short, long].flatMap((name) => name ?? []),
        description,
        value: valueOf(flags, required || optional),
      })),
      { flags: "-h, --help", names: ["-h", "--help"], description: "display help for command", value: null },
    ],
  }));
}

function argumentText(argument: { name: () => string; required: boolean; variadic: boolean }): string {
  const name = `${argument.name()}${argument.variadic ? "..." : ""}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}

function valueOf(flags: string, takesValue: boolean): OptionDefinition["value"] {
  if (!takesValue) return null;
  return /<(?:file|dir)>$/.test(flags) ? "path" : "other";
}

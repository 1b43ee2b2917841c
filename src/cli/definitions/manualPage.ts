import type { CommandDefinition } from "./definitions.js";

/** Escapes a text for troff. A dash is escaped so that it can be copied from the page. */
const escaped = (text: string): string =>
  text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/^(['.])/gm, "\\&$1");

/** Returns the manual page `pg-task(1)`, in troff with the macros of man(7). */
export function manualPage(
  commands: readonly CommandDefinition[],
  { version, description, exitCodes }: { version: string; description: string; exitCodes: readonly [string, string][] },
): string {
  const lines = [
    `.TH PG\\-TASK 1 "" "pg\\-task ${version}" "User commands"`,
    ".SH NAME",
    `pg\\-task \\- ${escaped(description)}`,
    ".SH SYNOPSIS",
    ".B pg\\-task",
    ".I command",
    "[\\fIarguments\\fR] [\\fIoptions\\fR]",
    ".SH COMMANDS",
    ...commands.flatMap(commandLines),
    ".SH EXIT STATUS",
    ...exitCodes.flatMap(([code, meaning]) => [".TP", `.B ${code}`, escaped(meaning)]),
    ".SH FILES",
    ".TP",
    ".I pg_task.json",
    "the configuration file, in the working folder unless \\fB\\-\\-config\\fR names another one",
    ".SH ENVIRONMENT",
    ".TP",
    ".B DATABASE_URL\\fR, \\fBPGHOST\\fR, \\fBPGPORT\\fR, …",
    "the control connection, if the configuration file has no url",
    ".TP",
    ".B NO_COLOR",
    "if set, the output has no colours",
  ];
  return `${lines.join("\n")}\n`;
}

function commandLines({ names, description, usage, options }: CommandDefinition): string[] {
  const [name = "", ...aliases] = names;
  const also = aliases.length === 0 ? "" : ` (also ${aliases.join(", ")})`;
  return [
    `.SS "${escaped(`${name} ${usage}`.trim())}"`,
    escaped(`${description}${also}`),
    ...options.flatMap((option) => [".TP", `.B ${escaped(option.flags)}`, escaped(option.description)]),
  ];
}

import type { Command } from "commander";
import { commandDefinitions, type CommandDefinition } from "../definitions.js";
import type { Terminal } from "../terminal/terminal.js";
import { packageVersion } from "../../shared/version.js";

const exitCodes: readonly [string, string][] = [
  ["0", "everything was done"],
  ["1", "not everything was done"],
  ["2", "invalid option, argument or configuration"],
  ["3", "no connection"],
  ["4", "table or privilege missing, or the server refused everything"],
  ["10, 11, 12", "add --wait, wait: the task ended as FAIL, GONE or STOP"],
  ["13", "add --wait, wait: the task's row was deleted while the command waited"],
  ["14", "add --wait: the task was added, but its outcome cannot be read"],
  ["70", "a bug in pg-task"],
  ["130", "add --wait or wait was interrupted; the task keeps running"],
];

/** Escapes a text for troff. A dash is escaped so that it can be copied from the page. */
const escaped = (text: string): string =>
  text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/^(['.])/gm, "\\&$1");

export function manual(terminal: Terminal, _: unknown, { parent: program }: Command): Promise<number> {
  const commands = program === null ? [] : commandDefinitions(program);
  const lines = [
    `.TH PG\\-TASK 1 "" "pg\\-task ${packageVersion()}" "User commands"`,
    ".SH NAME",
    `pg\\-task \\- ${escaped(program?.description() ?? "")}`,
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
  terminal.write(`${lines.join("\n")}\n`);
  return Promise.resolve(0);
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

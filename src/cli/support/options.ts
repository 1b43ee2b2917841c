import type { TaskFilter } from "../../tasks/types.js";
import { Argument, InvalidArgumentError, Option, type Command } from "commander";
import { PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { taskStates, type TaskState } from "../../shared/taskState.js";
import { idText, isTaskId } from "../../library/taskId.js";
import type { KeyFilter } from "../../tasks/queries/tasksWithKey.js";

export interface TableOptions {
  readonly config?: string;
  readonly entry?: string;
  readonly table?: string;
  /** What to say if no table matches, because the user may have meant something else than a table. */
  readonly unmatchedHint?: string;
}

export const configOption = (meaning = "configuration file (default: ./pg_task.json if present)"): Option =>
  new Option("-c, --config <file>", meaning);

export const jsonOption = (): Option => new Option("--json", "print JSON");

/** Parsers that collect the values of an option, which may therefore be given more than once. */
const collectors = new WeakSet<object>();

export function collecting<Parser extends object>(parser: Parser): Parser {
  collectors.add(parser);
  return parser;
}

/** Commander would silently use the last of several values, which may change the wrong tasks. */
export function refuseRepeated(command: Command): void {
  for (const option of command.options) {
    const { required, optional, variadic, parseArg } = option;
    if (!(required || optional) || variadic || (parseArg !== undefined && collectors.has(parseArg))) continue;
    let isGiven = false;
    command.on(`option:${option.name()}`, () => {
      if (isGiven) throw new PgTaskError("USAGE", `expected --${option.name()} once, got it more than once`);
      isGiven = true;
    });
  }
}

export interface CommandOptions extends TableOptions {
  readonly json?: true;
}

export const tableOptions = (): Option[] => [
  configOption(),
  new Option("-e, --entry <entry>", "entry: its number, database or key"),
  new Option("-t, --table <table>", "table: name or schema.name"),
];

export interface FilterOptions {
  readonly state?: readonly TaskState[];
  readonly group?: string;
  readonly key?: string;
  readonly role?: string;
  readonly text?: string;
  readonly since?: string;
  readonly until?: string;
}

export const filterOptions = (allowed: readonly TaskState[]): Option[] => [
  new Option("-s, --state <states>", `in these states, comma-separated: ${allowed.join(", ")}`).argParser((text) =>
    parseStates(text, allowed),
  ),
  new Option("-g, --group <group>", "in this group"),
  new Option("--key <key>", "with this key"),
  new Option("--role <role>", "that run as this role"),
  new Option("--text <text>", "with this text in input, data or error"),
  new Option("--since <time>", "planned at or after this time, in PostgreSQL's syntax"),
  new Option("--until <time>", "planned before this time"),
];

export const keyRoleOption = (): Option =>
  new Option("--role <role>", "with --key in a table with users: of this role, as each has its own keys");

/** Null without `--key`. */
export function keyFromOptions({ key, role }: Pick<FilterOptions, "key" | "role">): KeyFilter | null {
  if (key === undefined && role !== undefined) throw new PgTaskError("USAGE", "expected --key, because of --role");
  return key === undefined ? null : { key, ...omitUndefined({ role }) };
}

export function filterFromOptions({ state, group, key, role, text, since, until }: FilterOptions): TaskFilter {
  return omitUndefined({ states: state, group, key, role, text, since, until });
}

export function parseStates(text: string, allowed: readonly TaskState[] = taskStates): TaskState[] {
  return text.split(",").map((word) => {
    const state = allowed.find((each) => each === word.trim().toUpperCase());
    if (state !== undefined) return state;
    throw new InvalidArgumentError(`expected states from ${allowed.join(", ")}`);
  });
}

export function parseId(text: string): string {
  if (isTaskId(text)) return idText(text);
  throw new InvalidArgumentError(`expected a task id, got ${JSON.stringify(text)}`);
}

/** The name of a schedule, which looks natural here, is its key. */
function parseScheduleId(text: string): string {
  if (isTaskId(text)) return idText(text);
  const remedy = "list --schedules shows the ids, and --key takes a key instead";
  throw new InvalidArgumentError(`expected the id of a schedule, got ${JSON.stringify(text)}: ${remedy}`);
}

const listOf = (parse: (text: string) => string) =>
  collecting((text: string, previous: readonly string[] = []): readonly string[] => [
    ...previous,
    ...text.split(",").map(parse),
  ]);

export function parsePort(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return value;
  throw new InvalidArgumentError("expected a port from 1 to 65535");
}

export function integerParser(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : -1;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}`);
  };
}

export const argument = <T>(name: string, meaning?: string, parse?: (text: string, previous: T) => T): Argument =>
  parse === undefined ? new Argument(name, meaning) : new Argument(name, meaning).argParser(parse);

export const option = <T>(flags: string, meaning: string, parse?: (text: string, previous: T) => T): Option => {
  const made = new Option(flags, meaning);
  return parse === undefined ? made : made.argParser(parse);
};

export const ids = (): Argument => argument("[ids...]", "task ids", listOf(parseId));
export const tableName = (): Argument => argument("[table]", "same as --table");
export const yes = (meaning: string): Option => option("-y, --yes", meaning);
export const limit = (most: number): Option =>
  option("-n, --limit <n>", "at most this many", integerParser(1, 1_000_000)).default(most);

export const oneTask = {
  arguments: [argument("[id]", "the task's id", parseId)],
  options: [
    option(
      "--key <key>",
      "the one that waits with this key, else the one that runs, else the newest; instead of the id",
    ),
    keyRoleOption(),
  ],
};

export const pausedOptions = (): Option[] => [
  option("-g, --group <group>", "only this group"),
  option("--schedule <ids>", "only these schedules, by the ids of list --schedules", listOf(parseScheduleId)),
  option("--key <key>", "only the schedule with this key"),
  keyRoleOption(),
];

/** Matches what commander says of an option or argument whose parser throws an InvalidArgumentError. */
const invalidOption =
  /^option '(?:-\w, )?(?<option>--[\w-]+)[^']*' argument '(?<value>[^]*)' is invalid\. (?<message>[^]*)\n$/;
const invalidArgument =
  /^command-argument value '(?<value>[^]*)' is invalid for argument '[^']*'\. (?<message>[^]*)\n$/;

export function describeUsageErrors(program: Command): void {
  for (const command of [program, ...program.commands]) {
    const help = command === program ? "pg-task --help" : `pg-task ${command.name()} --help`;
    command.configureOutput({
      outputError: (text, write) =>
        write(`pg-task: ${describeUsageError(text.replace(/^error: /, ""), command, help)}`),
    });
  }
}

const withSpaces: Readonly<Record<string, string>> = {
  next: "the rule in quotes, such as pg-task next '30 2 * * *'",
  add: "the SQL in quotes, such as pg-task add 'SELECT 1'",
};

function describeUsageError(text: string, command: Command, help: string): string {
  // The second line is a suggestion.
  if (/^unknown option [^\n]*\n$/.test(text)) return `${text.trimEnd()}: ${help} lists the options\n`;
  const quoted = withSpaces[command.name()];
  if (quoted !== undefined && text.startsWith("too many arguments"))
    return `${text.trimEnd().replace(/\.$/, "")}: put ${quoted}\n`;
  const { option: flag, value, message } = (invalidOption.exec(text) ?? invalidArgument.exec(text))?.groups ?? {};
  if (message === undefined) return text;
  const expected = message.replace(/^Allowed choices are (.*)\.$/, "expected one of $1");
  const got = expected.includes(", got ") ? "" : `, got ${JSON.stringify(value)}`;
  return `${flag === undefined ? "" : `${flag}: `}${expected}${got}\n`;
}

import type { TaskFilter } from "../../tasks/types.js";
import { InvalidArgumentError, Option, type Command } from "commander";
import { PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { taskStates, type TaskState } from "../../shared/taskState.js";
import type { Terminal } from "../terminal/terminal.js";

/** Options that select the task table. */
export interface TableOptions {
  readonly config?: string;
  readonly entry?: string;
  readonly table?: string;
  /** What to say if no table matches, because the user may have meant something else than a table. */
  readonly unmatchedHint?: string;
}

/** Runs a command's action on the terminal of the process. The number that the action returns is the exit code. */
export type RunCommand = (action: (terminal: Terminal) => Promise<number>) => Promise<void>;

export const configOption = (meaning = "configuration file (default: ./pg_task.json if present)"): Option =>
  new Option("-c, --config <file>", meaning);

/** Parsers that collect the values of an option, which may therefore be given more than once. */
const collectors = new WeakSet<object>();

export function collecting<Parser extends object>(parser: Parser): Parser {
  collectors.add(parser);
  return parser;
}

/**
 * Lets the command refuse an option with a value that is given more than once. Commander would silently use the last
 * value, which may change the wrong tasks.
 */
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

/** Options that every command on a table has. */
export interface CommandOptions extends TableOptions {
  readonly json?: true;
}

export function addTableOptions(command: Command): Command {
  return command
    .addOption(configOption())
    .option("-e, --entry <entry>", "entry: its number, database or key")
    .option("-t, --table <table>", "table: name or schema.name")
    .option("--json", "print JSON");
}

/** Options that select which tasks a command applies to. */
export interface FilterOptions {
  readonly state?: readonly TaskState[];
  readonly group?: string;
  readonly key?: string;
  readonly text?: string;
  readonly since?: string;
  readonly until?: string;
}

export function addFilterOptions(command: Command, allowed: readonly TaskState[] = taskStates): Command {
  return command
    .option("-s, --state <states>", `in these states, comma-separated: ${allowed.join(", ")}`, (text: string) =>
      parseStates(text, allowed),
    )
    .option("-g, --group <group>", "in this group")
    .option("--key <key>", "with this key")
    .option("--text <text>", "with this text in input, data or error")
    .option("--since <time>", "planned at or after this time, in PostgreSQL's syntax")
    .option("--until <time>", "planned before this time");
}

export function filterFromOptions({ state, group, key, text, since, until }: FilterOptions): TaskFilter {
  return omitUndefined({ states: state, group, key, text, since, until });
}

export function parseStates(text: string, allowed: readonly TaskState[] = taskStates): TaskState[] {
  return text.split(",").map((word) => {
    const state = allowed.find((each) => each === word.trim().toUpperCase());
    if (state !== undefined) return state;
    throw new InvalidArgumentError(`expected states from ${allowed.join(", ")}`);
  });
}

const maxId = 9_223_372_036_854_775_807n;

/** Returns an id as text, because a bigint can exceed JavaScript's safe integers. Null if the text is not an id. */
function readId(text: string): string | null {
  if (!/^-?\d{1,19}$/.test(text)) return null;
  const id = BigInt(text);
  return id <= maxId && id >= -maxId - 1n ? String(id) : null;
}

export function parseId(text: string): string {
  const id = readId(text);
  if (id === null) throw new InvalidArgumentError(`expected a task id, got ${JSON.stringify(text)}`);
  return id;
}

/** Collects ids. Each value can be a comma-separated list. */
export const parseIds = collecting((text: string, previous: readonly string[] = []): readonly string[] => [
  ...previous,
  ...text.split(",").map(parseId),
]);

/** Collects the ids of schedules as `parseIds` does. The name of a schedule, which looks natural here, is its key. */
export const parseScheduleIds = collecting((text: string, previous: readonly string[] = []): readonly string[] => {
  const ids = text.split(",").map((word) => {
    const id = readId(word);
    if (id !== null) return id;
    const remedy = "list --schedules shows the ids, and --key takes a key instead";
    throw new InvalidArgumentError(`expected the id of a schedule, got ${JSON.stringify(word)}: ${remedy}`);
  });
  return [...previous, ...ids];
});

export function integerParser(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : -1;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}`);
  };
}

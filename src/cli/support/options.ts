import { InvalidArgumentError, Option, type Command } from "commander";
import { states, type TaskFilter, type TaskState } from "../../tasks/taskFilter.js";
import type { TableOptions } from "./openTable.js";

export const configOption = (
  meaning = "configuration file (default: ./pg_task.json if present)",
): Option => new Option("-c, --config <file>", meaning);

/** Options of every command about tasks. */
export interface CommandOptions extends TableOptions {
  readonly json?: true;
}

export function withTableOptions(command: Command): Command {
  return command
    .addOption(configOption())
    .option("-e, --entry <entry>", "which entry: its number, database or key")
    .option("-t, --table <table>", "which table: its name, or schema.name")
    .option("--json", "print JSON");
}

/** Options that say which tasks. */
export interface FilterOptions {
  readonly state?: readonly TaskState[];
  readonly group?: string;
  readonly text?: string;
  readonly since?: string;
  readonly until?: string;
}

export function withFilterOptions(
  command: Command,
  allowed: readonly TaskState[] = states,
): Command {
  return command
    .option(
      "-s, --state <states>",
      `in these states, with commas: ${allowed.join(", ")}`,
      (text: string) => parseStates(text, allowed),
    )
    .option("-g, --group <group>", "of this group")
    .option("--text <text>", "with this text in input, data or error")
    .option("--since <time>", "planned at this time or later, as PostgreSQL takes it")
    .option("--until <time>", "planned before this time");
}

export function toFilter({ state, group, text, since, until }: FilterOptions): TaskFilter {
  return {
    ...(state === undefined ? {} : { states: state }),
    ...(group === undefined ? {} : { group: group }),
    ...(text === undefined ? {} : { text: text }),
    ...(since === undefined ? {} : { since }),
    ...(until === undefined ? {} : { until }),
  };
}

function parseStates(text: string, allowed: readonly TaskState[]): TaskState[] {
  return text.split(",").map((word) => {
    const state = allowed.find((each) => each === word.trim().toUpperCase());
    if (state !== undefined) return state;
    throw new InvalidArgumentError(`expected some of ${allowed.join(", ")}`);
  });
}

const largestId = 9_223_372_036_854_775_807n;

/** An id as text, since it may be larger than a number is exact. */
export function parseId(text: string): string {
  if (/^-?\d{1,19}$/.test(text)) {
    const id = BigInt(text);
    if (id <= largestId && id >= -largestId - 1n) return String(id);
  }
  throw new InvalidArgumentError(
    `expected a task's id, a whole number, got ${JSON.stringify(text)}`,
  );
}

/** Collects the ids of a variadic argument; several may stand in one word, between commas. */
export function parseIds(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, ...text.split(",").map(parseId)];
}

export function wholeNumber(least: number, most: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : -1;
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`expected a whole number from ${least} to ${most}`);
  };
}

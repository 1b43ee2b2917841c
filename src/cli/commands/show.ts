import type { Command } from "commander";
import { readChain, type Chain } from "../../tasks/queries/taskChain.js";
import { readTask, type ColumnValue, type WholeTask } from "../../tasks/queries/readTask.js";
import type { TaskSummary } from "../../tasks/queries/taskSummary.js";
import { exitCode } from "../support/exitCodes.js";
import { summaryLength, taskColumns } from "./list.js";
import { onTable } from "../support/openTable.js";
import type { CommandRun } from "../support/run.js";
import { parseId, withTableOptions, type CommandOptions } from "../support/options.js";
import { field, printableLine, printableText } from "../terminal/escape.js";
import { table } from "../terminal/table.js";
import { coloured, stateColour, type Terminal } from "../terminal/terminal.js";
import { counted, shownNumber, shownTime } from "../terminal/format.js";

interface ShowOptions extends CommandOptions {
  readonly full?: true;
}

/** Lines and characters of a value that a terminal gets, unless all is asked for. */
const shownLines = 20;
const shownCharacters = 4000;
/** How long rows are looked through for what came of a task, in ms. */
const patienceMs = 3_000;

export function declareShow(program: Command, run: CommandRun): void {
  const command = program
    .command("show")
    .description("show all of a task, with the tasks it came from and those that came from it")
    .argument("<id>", "the task's id", parseId)
    .option("--full", "long texts and chains in full also on a terminal");
  withTableOptions(command).action((id: string, options: ShowOptions) =>
    run((terminal) => show(terminal, id, options)),
  );
}

async function show(terminal: Terminal, id: string, options: ShowOptions): Promise<number> {
  const found = await onTable(options, "show", async ({ client, table: names }) => {
    const task = await readTask(client, names, id);
    if (task === null) return null;
    const chain = await readChain(client, names, id, { characters: summaryLength, patienceMs });
    return { task, chain };
  });
  if (found === null) {
    terminal.note(`pg-task: there is no task ${id}\n`);
    return exitCode.notAll;
  }
  const { task, chain } = found;
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ task: Object.fromEntries(task), ...chain }, null, 2)}\n`);
    return 0;
  }
  if (!terminal.isTerminal) {
    const lines = [...task].map(([name, value]) => `${field(name)}\t${field(valueText(value))}\n`);
    terminal.write(lines.join(""));
    return 0;
  }
  terminal.write(`${wholeTask(terminal, task, options.full === true).join("\n")}\n`);
  terminal.write(family(terminal, chain, options.full === true));
  return 0;
}

const valueText = (value: ColumnValue): string | null => {
  if (value === null) return null;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
};

const times = new Set(["plan", "take", "start", "stop"]);
const longTexts = new Set(["input", "output", "error"]);

/** Short values first, one to a line, then the long texts under their names. */
function wholeTask(terminal: Terminal, task: WholeTask, full: boolean): string[] {
  const lines: string[] = [];
  const widest = Math.max(...[...task.keys()].map((name) => name.length));
  for (const [name, value] of task) {
    const text = valueText(value);
    if (text === null || longTexts.has(name)) continue;
    const shown = times.has(name) ? shownTime(text) : text;
    const label = coloured(terminal, "grey", printableText(name).padEnd(widest));
    const [first = "", ...rest] = cutText(
      name === "data" ? printableText(shown) : printableLine(shown),
      full,
    );
    const painted = name === "state" ? coloured(terminal, stateColour(first), first) : first;
    lines.push(`${label}  ${painted}`, ...rest.map((line) => `${" ".repeat(widest)}  ${line}`));
  }
  for (const name of longTexts) {
    const text = valueText(task.get(name) ?? null);
    if (text === null) continue;
    lines.push(
      "",
      coloured(terminal, "grey", name),
      ...cutText(printableText(text), full).map((line) => `  ${line}`),
    );
  }
  return lines;
}

/** The lines of a text, no more than a reader takes in. */
export function cutText(text: string, full: boolean): string[] {
  const all = text.split("\n");
  if (full) return all;
  const lines = text.slice(0, shownCharacters).split("\n").slice(0, shownLines);
  const kept = lines.join("\n").length;
  if (kept === text.length) return all;
  const left = text.length - kept;
  return [...lines, `… ${counted(left, "more character")} (--full shows them)`];
}

/** Relatives of each kind that a terminal gets, unless all are asked for, and how far they are set in. */
const shownRelatives = 20;
const deepest = 8;

/** From the first ancestor on, each set further in than what it came from. */
function family(terminal: Terminal, chain: Chain, full: boolean): string {
  const { ancestors, ancestorsComplete, descendants, descendantsComplete } = chain;
  const most = full ? Infinity : shownRelatives;
  const earlier = ancestors.slice(0, most).toReversed();
  const later = descendants.slice(0, most).map((task): TaskSummary => ({
    ...task,
    input: `${"· ".repeat(Math.min(task.depth - 1, deepest))}${task.input}`,
  }));
  const hiddenEarlier = moreText(ancestors.length - earlier.length);
  const hiddenLater = moreText(descendants.length - later.length);
  return [
    section(terminal, "came from", [
      ...(ancestorsComplete ? [] : ["… its first ancestors are left out"]),
      ...hiddenEarlier,
      ...rows(terminal, earlier),
    ]),
    section(terminal, "led to", [
      ...rows(terminal, later),
      ...hiddenLater,
      ...(descendantsComplete ? [] : ["… there may be others behind those"]),
    ]),
  ].join("");
}

const moreText = (hidden: number): string[] =>
  hidden === 0 ? [] : [`… ${shownNumber(hidden)} more (--full shows them)`];

const rows = (terminal: Terminal, tasks: readonly TaskSummary[]): string[] =>
  tasks.length === 0 ? [] : table(terminal, taskColumns, tasks);

const section = (terminal: Terminal, title: string, lines: readonly string[]): string =>
  lines.length === 0 ? "" : `\n${coloured(terminal, "bold", title)}\n${lines.join("\n")}\n`;

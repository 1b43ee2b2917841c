import type { TaskSummary } from "../../tasks/types.js";
import type { Command } from "commander";
import { readDependencyGraph } from "../../tasks/queries/dependencyGraph.js";
import { readChain, type TaskChain } from "../../tasks/queries/taskChain.js";
import { mayReadDependencies } from "../../tasks/queries/waitingTasks.js";
import { explainNotRetried } from "../../tasks/explain/notRetried.js";
import { readTask, type ColumnValue, type TaskColumns } from "../../tasks/queries/readTask.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { formatDependencies } from "../support/dependencyTree.js";
import { withTable } from "../support/openTable.js";
import { addIdOrKey, describeMissing, readGivenId, requireIdOrKey, type OneTaskOptions } from "../support/idOrKey.js";
import { addTableOptions, type RunCommand } from "../support/options.js";
import { summaryLength, taskColumns } from "../support/taskColumns.js";
import { truncateText } from "../support/truncateText.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { attemptText } from "../../shared/attemptText.js";
import { firstLine } from "../../shared/firstLine.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import { copyField } from "../terminal/copyField.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { renderTable } from "../terminal/table.js";
import { colourText, stateColour, type Terminal } from "../terminal/terminal.js";
import { columnsWith } from "../../shared/taskColumns.js";
import { formatFullTime, formatNumber } from "../terminal/format.js";

interface ShowOptions extends OneTaskOptions {
  readonly full?: true;
}

/** Time limit for the search for a task's descendants, and for that for tasks that have waited for it, in ms. */
const searchMs = 3_000;

export function registerShow(program: Command, run: RunCommand): void {
  const command = program
    .command("show")
    .description("show all columns of a task, its ancestors and descendants, and what waits for what")
    .option("--full", "do not truncate long values and chains on a terminal");
  addTableOptions(addIdOrKey(command)).action((id: string | undefined, options: ShowOptions) =>
    run((terminal) => show(terminal, id, options)),
  );
}

async function show(terminal: Terminal, given: string | undefined, options: ShowOptions): Promise<number> {
  requireIdOrKey(given, options);
  const found = await withTable(terminal, options, "show", async (opened) => {
    const { client, table: names, entry } = opened;
    const id = await readGivenId(opened, given, options);
    const task = id === null ? null : await readTask(client, names, id);
    if (id === null || task === null) return null;
    const notRetried = await explainNotRetried(client, names, id, entry.parameters);
    const chain = await readChain(client, names, id, {
      characters: summaryLength,
      scanLimitMs: searchMs,
    });
    if (!(await mayReadDependencies(client, names))) {
      const hint = `GRANT SELECT ON ${names.qualifiedDependencies} TO …`;
      terminal.writeError(`pg-task: what waits for what is not shown, this role may not read it: ${hint}\n`);
      return { task, notRetried, chain, dependencies: null };
    }
    const dependencies = await readDependencyGraph(client, names, id, {
      characters: summaryLength,
      scanLimitMs: searchMs,
    });
    return { task, notRetried, chain, dependencies };
  });
  if (found === null) {
    terminal.writeError(`pg-task: ${describeMissing(given, options)}\n`);
    return commandExitCodes.notAll;
  }
  const { task, notRetried, chain, dependencies } = found;
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ task: Object.fromEntries(task), ...chain, dependencies }, null, 2)}\n`);
    return 0;
  }
  if (!terminal.isTerminal) {
    const lines = [...task].map(([name, value]) => `${copyField(name)}\t${copyField(formatValue(value))}\n`);
    terminal.write(lines.join(""));
    return 0;
  }
  terminal.write(`${formatTask(terminal, task, notRetried, options.full === true).join("\n")}\n`);
  const trees = dependencies === null ? [] : formatDependencies(terminal, dependencies, options.full === true);
  terminal.write(trees.map(({ title, lines }) => formatSection(terminal, title, lines)).join(""));
  terminal.write(formatChain(terminal, chain, options.full === true));
  return 0;
}

const formatValue = (value: ColumnValue): string | null => {
  if (value === null) return null;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
};

const timeColumns: ReadonlySet<string> = new Set(columnsWith({ type: "timestamp with time zone" }));
const isIsoTime = (text: string): boolean => /^\d{4,}-\d\d-\d\dT/.test(text);
/** Columns that are shown first, one per line. */
const mainColumns = ["id", "state", "group", "plan", "start", "stop"];
/** Columns that may contain long text. Each is shown below its name, after the main columns. */
const longColumns = ["input", "error", "output"];

/**
 * Formats a task: first its main columns, then the long ones, then all others.
 *
 * @param notRetried why it has failed although its `retry` allows more tries, or null
 */
function formatTask(terminal: Terminal, task: TaskColumns, notRetried: string | null, full: boolean): string[] {
  const others = [...task.keys()].filter(
    (name) => !mainColumns.includes(name) && !longColumns.includes(name) && !isErrorList(name, task.get(name) ?? null),
  );
  const width = Math.max(...[...mainColumns, "took", ...others].map((name) => name.length));
  const line = (name: string, value: string): string[] => formatColumn(terminal, { name, value, width }, full);
  const lines = (names: readonly string[]): string[] =>
    names.flatMap((name) => {
      const text = formatValue(task.get(name) ?? null);
      const tried = name === "attempt" ? describeAttempt(task) : null;
      return text === null ? [] : line(name, tried === null ? text : `${text} (${tried})`);
    });
  const took = runMs(task);
  return [
    ...lines(mainColumns),
    ...(took === null ? [] : line("took", formatDuration(took))),
    ...longColumns.flatMap((name) => formatLongColumn(terminal, name, task, full)),
    ...formatTryErrors(terminal, task, full),
    ...(notRetried === null ? [] : ["", printableLine(notRetried)]),
    "",
    ...lines(others),
  ];
}

/** Says which try it is, as the page does, because `attempt` counts those before it. Null if the column is the user's own. */
function describeAttempt(task: TaskColumns): string | null {
  const [state, attempt, retry] = ["state", "attempt", "retry"].map((name) => task.get(name));
  if (typeof state !== "string" || typeof attempt !== "number" || typeof retry !== "number") return null;
  const text = attemptText({ state, attempt, retry });
  return text?.startsWith("attempt") === true && attempt > 0 ? `failed before ${text}` : text;
}

function formatColumn(
  terminal: Terminal,
  { name, value, width }: { readonly name: string; readonly value: string; readonly width: number },
  full: boolean,
): string[] {
  const shown = timeColumns.has(name) && isIsoTime(value) ? formatFullTime(value) : value;
  const label = colourText(terminal, "grey", printableText(name).padEnd(width));
  const [first = "", ...rest] = truncateText(name === "data" ? printableText(shown) : printableLine(shown), full);
  const painted = name === "state" ? colourText(terminal, stateColour(first), first) : first;
  return [`${label}  ${painted}`, ...rest.map((more) => `${" ".repeat(width)}  ${more}`)];
}

function formatLongColumn(terminal: Terminal, name: string, task: TaskColumns, full: boolean): string[] {
  const text = formatValue(task.get(name) ?? null);
  if (text === null) return [];
  return [
    "",
    colourText(terminal, "grey", name),
    ...truncateText(printableText(text), full).map((line) => `  ${line}`),
  ];
}

/** Returns how long the task's run took, in ms, or null if it has not ended. */
function runMs(task: TaskColumns): number | null {
  const time = (name: string): number => Date.parse(formatValue(task.get(name) ?? null) ?? "");
  const took = time("stop") - time("start");
  return took >= 0 ? took : null;
}

const isErrorList = (name: string, value: ColumnValue): boolean => name === "errors" && readTryErrors(value) !== null;

/** Formats the errors of earlier tries, the oldest first. */
function formatTryErrors(terminal: Terminal, task: TaskColumns, full: boolean): string[] {
  const errors = readTryErrors(task.get("errors") ?? null) ?? [];
  if (errors.length === 0) return [];
  const lines = errors.flatMap(({ stop, sqlstate, error }) => {
    const [first = "", ...rest] = printableText(full ? error : firstLine(error)).split("\n");
    return [`  ${formatFullTime(stop)}  ${sqlstate}  ${first}`, ...rest.map((line) => `    ${line}`)];
  });
  return ["", colourText(terminal, "grey", "errors of earlier attempts"), ...lines];
}

/** Maximum number of ancestors and of descendants that a terminal shows without --full. */
const maxRelatives = 20;
/** Descendants below this depth are not indented any further. */
const maxIndent = 8;

/**
 * Formats a task's chain (its ancestors and descendants), beginning with the oldest ancestor. Each descendant is
 * indented below its parent.
 */
function formatChain(terminal: Terminal, chain: TaskChain, full: boolean): string {
  const { ancestors, ancestorsComplete, descendants, descendantsComplete } = chain;
  const limit = full ? Infinity : maxRelatives;
  const earlier = ancestors.slice(0, limit).toReversed();
  const later = descendants.slice(0, limit).map((task): TaskSummary => ({
    ...task,
    input: `${"· ".repeat(Math.min(task.depth - 1, maxIndent))}${task.input}`,
  }));
  const hiddenEarlier = formatHidden(ancestors.length - earlier.length);
  const hiddenLater = formatHidden(descendants.length - later.length);
  return [
    formatSection(terminal, "ancestors", [
      ...(ancestorsComplete ? [] : ["… older ancestors are omitted"]),
      ...hiddenEarlier,
      ...formatRows(terminal, earlier),
    ]),
    formatSection(terminal, "descendants", [
      ...formatRows(terminal, later),
      ...hiddenLater,
      ...(descendantsComplete ? [] : ["… there may be more"]),
    ]),
  ].join("");
}

const formatHidden = (hidden: number): string[] =>
  hidden === 0 ? [] : [`… ${formatNumber(hidden)} more (see --full)`];

const formatRows = (terminal: Terminal, tasks: readonly TaskSummary[]): string[] =>
  tasks.length === 0 ? [] : renderTable(terminal, taskColumns(tasks), tasks);

const formatSection = (terminal: Terminal, title: string, lines: readonly string[]): string =>
  lines.length === 0 ? "" : `\n${colourText(terminal, "bold", title)}\n${lines.join("\n")}\n`;

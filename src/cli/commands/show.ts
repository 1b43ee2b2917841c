import type { TaskSummary } from "../../tasks/types.js";
import {
  mayReadDependencies,
  readDependencyGraph,
  type DependencyGraph,
  type Dependency,
  type DependencyNode,
} from "../../tasks/queries/dependencyGraph.js";
import { readChain, type TaskChain } from "../../tasks/queries/taskChain.js";
import { explainNotRetried } from "../../tasks/explain/endedTask.js";
import { readTask, type ColumnValue, type TaskColumns } from "../../tasks/queries/readTask.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { readOneTask, type OneTaskOptions, readReasons } from "../support/oneTask.js";
import { summaryLength, taskColumns } from "../support/columns.js";
import { truncateText, copyField, formatFullTime, formatNumber, truncate, formatCount } from "../terminal/format.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { attemptText } from "../../shared/attemptText.js";
import { firstLine } from "../../shared/firstLine.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import { jsonText, printableLine, printableText } from "../../shared/printable.js";
import { renderTable } from "../terminal/table.js";
import { colourText, stateColour, type Terminal } from "../terminal/terminal.js";
import { columnsWith } from "../../shared/taskColumns.js";

interface ShowOptions extends OneTaskOptions {
  readonly full?: true;
}

const limits = { characters: summaryLength, scanLimitMs: 3_000 };

export async function show(terminal: Terminal, given: string | undefined, options: ShowOptions): Promise<number> {
  const shown = await readOneTask(terminal, "show", given, options, async (opened, id) => {
    const { client, table: names, entry } = opened;
    const task = await readTask(client, names, id);
    if (task === null) return null;
    const notRetried = await explainNotRetried(client, names, id, entry.parameters);
    const chain = await readChain(client, names, id, limits);
    if (!(await mayReadDependencies(client, names))) {
      const hint = `GRANT SELECT ON ${names.qualifiedDependencies} TO …`;
      terminal.writeError(`pg-task: what waits for what is not shown, this role may not read it: ${hint}\n`);
      return { task, notRetried, chain, dependencies: null };
    }
    const dependencies = await readDependencyGraph(client, names, id, limits);
    return { task, notRetried, chain, dependencies };
  });
  if (shown === null) return commandExitCodes.notAll;
  const { task, notRetried, chain, dependencies } = shown.found;
  if (options.json === true) {
    terminal.write(`${jsonText({ task: Object.fromEntries(task), ...chain, dependencies })}\n`);
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
const mainColumns = ["id", "state", "group", "plan", "start", "stop"];
const longColumns = ["input", "error", "output"];

/** @param notRetried why it has failed although its `retry` allows more tries, or null */
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

/** As on the page: `attempt` counts the tries before. Null if the column is the user's own. */
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

function runMs(task: TaskColumns): number | null {
  const time = (name: string): number => Date.parse(formatValue(task.get(name) ?? null) ?? "");
  const took = time("stop") - time("start");
  return took >= 0 ? took : null;
}

const isErrorList = (name: string, value: ColumnValue): boolean => name === "errors" && readTryErrors(value) !== null;

function formatTryErrors(terminal: Terminal, task: TaskColumns, full: boolean): string[] {
  const errors = readTryErrors(task.get("errors") ?? null) ?? [];
  if (errors.length === 0) return [];
  const lines = errors.flatMap(({ stop, sqlstate, error }) => {
    const [first = "", ...rest] = printableText(full ? error : firstLine(error)).split("\n");
    return [`  ${formatFullTime(stop)}  ${sqlstate}  ${first}`, ...rest.map((line) => `    ${line}`)];
  });
  return ["", colourText(terminal, "grey", "errors of earlier attempts"), ...lines];
}

const maxRelatives = 20;
const maxIndent = 8;

/** Begins with the oldest ancestor. Each descendant is indented below its parent. */
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

const maxWidth = 10;
const maxLevels = 4;

type Direction = "predecessors" | "dependents";

interface Tree {
  readonly graph: DependencyGraph;
  readonly direction: Direction;
  readonly full: boolean;
  /** Tasks that the tree already shows. They are not expanded again. */
  readonly shown: Set<string>;
}

/** Two trees: what the first node of the graph waits for, and what waits for it. */
export function formatDependencies(
  terminal: Terminal,
  graph: DependencyGraph,
  full: boolean,
): { readonly title: string; readonly lines: string[] }[] {
  const [task] = graph.nodes;
  if (task === undefined) return [];
  const treeOf = (direction: Direction): string[] =>
    formatBelow(terminal, { graph, direction, full, shown: new Set([task.id]) }, task, "", 0);
  const omitted = graph.formerComplete ? [] : ["… there may be more that no longer wait"];
  return [
    { title: predecessorsTitle(task), lines: treeOf("predecessors") },
    { title: "tasks that wait or have waited for it", lines: [...treeOf("dependents"), ...omitted] },
  ].filter(({ lines }) => lines.length > 0);
}

const predecessorsTitle = ({ predecessors, waitsFor, upon }: DependencyNode): string => {
  const tasks = formatCount(predecessors, "task");
  const what = waitsFor === 0 ? `after ${tasks}` : `waits for ${formatNumber(waitsFor)} of ${tasks}`;
  return `${what}, upon ${upon ?? "done"}`;
};

function formatBelow(terminal: Terminal, tree: Tree, node: DependencyNode, indent: string, level: number): string[] {
  const { full } = tree;
  const all = edgesBelow(tree, node.id);
  const edges = full ? all : level < maxLevels ? all.slice(0, maxWidth) : [];
  const omitted = tree.direction === "predecessors" ? node.morePredecessors : node.moreDependents;
  const hidden = all.length - edges.length + omitted;
  const more = `… ${formatNumber(hidden)} more${all.length > edges.length ? " (see --full)" : ""}`;
  const lines = edges.flatMap((edge, index) => {
    const isLast = index === edges.length - 1 && hidden === 0;
    return formatEdge(terminal, tree, edge, { indent, isLast, level });
  });
  return hidden === 0 ? lines : [...lines, `${indent}└─ ${more}`];
}

function formatEdge(
  terminal: Terminal,
  tree: Tree,
  edge: Dependency,
  { indent, isLast, level }: { readonly indent: string; readonly isLast: boolean; readonly level: number },
): string[] {
  const id = tree.direction === "predecessors" ? edge.predecessor : edge.task;
  const node = tree.graph.nodes.find((each) => each.id === id);
  if (node === undefined) return [];
  const start = `${indent}${isLast ? "└─" : "├─"} `;
  const seen = tree.shown.has(id);
  tree.shown.add(id);
  const line = `${start}${formatNode(terminal, node, edge, seen, terminal.columns - start.length)}`;
  if (seen) return [line];
  return [line, ...formatBelow(terminal, tree, node, `${indent}${isLast ? "  " : "│ "} `, level + 1)];
}

/** Failed predecessors come first, then those that have not ended. The nodes are in this order. */
function edgesBelow({ graph, direction }: Tree, id: string): Dependency[] {
  const places = new Map(graph.nodes.map((node, place) => [node.id, place]));
  const far = direction === "predecessors" ? "predecessor" : "task";
  return graph.edges
    .filter((edge) => (direction === "predecessors" ? edge.task : edge.predecessor) === id)
    .toSorted((a, b) => (places.get(a[far]) ?? 0) - (places.get(b[far]) ?? 0));
}

function formatNode(terminal: Terminal, node: DependencyNode, edge: Dependency, seen: boolean, width: number): string {
  const { id, state, error, input, upon } = node;
  const name = state ?? "deleted";
  const notes = [
    ...(state === null ? [`counts as ${edge.status === "failed" ? "failed" : "done"}`] : []),
    ...(edge.status === "over" ? [`${edge.task} no longer waits for ${edge.predecessor}`] : []),
    ...(upon === "fail" || upon === "end" ? [`upon ${upon}`] : []),
    ...(seen ? ["see above"] : []),
  ];
  const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  const rest = printableLine(`${note}  ${error === null || error === "" ? (input ?? "") : error}`).trimEnd();
  const text = truncate(rest, Math.max(0, width - `${id} ${name}`.length));
  return `${id} ${colourText(terminal, stateColour(name), printableLine(name))}${text}`;
}

export async function why(terminal: Terminal, given: string | undefined, options: OneTaskOptions): Promise<number> {
  const localTimes = terminal.isTerminal && options.json !== true;
  const explained = await readOneTask(terminal, "why", given, options, (opened, id) =>
    readReasons(opened, id, { localTimes }),
  );
  if (explained === null) return commandExitCodes.notAll;
  const { id, found: reasons } = explained;
  if (options.json === true) {
    terminal.write(`${jsonText({ id, reasons })}\n`);
  } else if (terminal.isTerminal) {
    for (const { text, remedy } of reasons) {
      terminal.write(`${printableLine(text)}\n`);
      if (remedy !== undefined) terminal.write(`  ${colourText(terminal, "grey", printableLine(remedy))}\n`);
    }
  } else {
    for (const { code, text, remedy } of reasons) {
      terminal.write(`${[code, text, remedy ?? null].map(copyField).join("\t")}\n`);
    }
  }
  return 0;
}

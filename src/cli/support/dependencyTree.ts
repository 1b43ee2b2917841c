import type { DependencyGraph } from "../../tasks/queries/dependencyGraph.js";
import type { Dependency, DependencyNode } from "../../tasks/queries/dependencyNodes.js";
import { truncate } from "../terminal/displayWidth.js";
import { printableLine } from "../../shared/printable.js";
import { formatCount, formatNumber } from "../terminal/format.js";
import { colourText, stateColour, type Terminal } from "../terminal/terminal.js";

/** The maximum numbers of tasks below one task, and of levels, that a terminal shows without --full. */
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

/**
 * Formats what a task waits for and what waits for it as two trees. The first node of the graph is the task.
 *
 * @returns sections without those that are empty, each with a title and lines
 */
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

/** Formats what is below a task in the tree, one line for each task. */
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

import type { DependencyGraph, DependencyNode } from "../../tasks/queries/dependencyGraph.js";

/** Tasks and what they wait for, which have smaller ids. */
export type Graph = Pick<DependencyGraph, "nodes" | "edges">;

/** In px of the drawing at its full size. */
export interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface NodeBox extends Place {
  readonly node: DependencyNode;
}

export interface MoreBox extends Place, MoreCount {
  readonly key: string;
}

interface MoreCount {
  readonly count: number;
  /** False if some tasks may be counted twice, because several tasks may have the same predecessors or dependents. */
  readonly exact: boolean;
}

export interface Line {
  /** The id of a task, or the key of a box that stands for several. */
  readonly from: string;
  readonly to: string;
  /** Status of the dependency. Null if the line stands for several. */
  readonly status: string | null;
  readonly path: string;
  readonly x: number;
  readonly y: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  /** By column from left to right, and within a column from top to bottom. */
  readonly boxes: readonly NodeBox[];
  readonly more: readonly MoreBox[];
  readonly lines: readonly Line[];
}

export const maxPerColumn = 8;

const boxWidth = 196;
const boxHeight = 52;
const moreHeight = 28;
/** Height of the lane in which a line passes a column. */
const laneHeight = 8;
const columnGap = 60;
const rowGap = 12;
const sweeps = 3;

const moreKey = (column: number): string => `more ${column}`;

export const nextColumnKey = moreKey(1);

/** Something that takes up space in a column: a task, a box that stands for several, or the lane of a passing line. */
interface Item {
  readonly key: string;
  readonly column: number;
  readonly height: number;
  /** Items in the neighbouring columns to which lines lead. */
  readonly left: Set<Item>;
  readonly right: Set<Item>;
  y: number;
}

/**
 * Places the tasks around one of them in columns: what it waits for to the left, what waits for it to the right. Each
 * task is to the right of all that it waits for. The result depends on nothing but the arguments. Tasks that are not
 * connected with the one in the middle are left out.
 */
export function layoutGraph(graph: Graph, middle: string): Layout {
  const columns = columnsOf(graph, middle);
  const shown = shownIds(graph.nodes, columns, middle);
  const { items, ways, more } = itemsOf(graph, columns, shown);
  arrange(items);
  const list = [...items.values()];
  const top = Math.min(...list.map((item) => item.y - item.height / 2));
  const bottom = Math.max(...list.map((item) => item.y + item.height / 2));
  const first = Math.min(...list.map((item) => item.column));
  const last = Math.max(...list.map((item) => item.column));
  const left = (item: Item): number => (item.column - first) * (boxWidth + columnGap);
  const place = (item: Item): Place => ({
    x: left(item),
    y: round(item.y - item.height / 2 - top),
    width: boxWidth,
    height: item.height,
  });
  const ordered = list.toSorted((a, b) => a.column - b.column || a.y - b.y);
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  return {
    width: (last - first) * (boxWidth + columnGap) + boxWidth,
    height: round(bottom - top),
    boxes: ordered.flatMap((item) => {
      const node = nodes.get(item.key);
      return node === undefined ? [] : [{ ...place(item), node }];
    }),
    more: ordered.flatMap((item) => {
      const count = more.get(item.key);
      return count === undefined ? [] : [{ ...place(item), key: item.key, ...count }];
    }),
    lines: ways.map(({ through, status }) => {
      const points = through.map((item) => ({ x: left(item), y: round(item.y - top) }));
      const end = points.at(-1) ?? { x: 0, y: 0 };
      const [from, to] = [through[0]?.key ?? "", through.at(-1)?.key ?? ""];
      return { from, to, status, path: pathThrough(points), ...end };
    }),
  };
}

const round = (px: number): number => Math.round(px * 2) / 2;

/** Compares ids. They are strings because a number cannot represent all of them. */
function compareIds(a: string, b: string): number {
  const difference = BigInt(a) - BigInt(b);
  return difference < 0n ? -1 : Number(difference > 0n);
}

/** Negative for what the middle waits for, positive for what waits for it; the length of the longest way. */
function columnsOf({ nodes, edges }: Graph, middle: string): Map<string, number> {
  const columns = new Map([[middle, 0]]);
  const known = new Set(nodes.map((node) => node.id));
  const inOrder = edges
    .filter(({ predecessor, task }) => known.has(predecessor) && known.has(task) && compareIds(predecessor, task) < 0)
    .toSorted((a, b) => compareIds(a.predecessor, b.predecessor));
  // What a task waits for has a smaller id, so each column is final before it is used.
  for (const { predecessor, task } of inOrder) {
    const column = columns.get(predecessor);
    if (column !== undefined) columns.set(task, Math.max(column + 1, columns.get(task) ?? 0));
  }
  for (const { predecessor, task } of inOrder.toSorted((a, b) => compareIds(b.task, a.task))) {
    const column = columns.get(task);
    if (column !== undefined && column <= 0) {
      columns.set(predecessor, Math.min(column - 1, columns.get(predecessor) ?? 0));
    }
  }
  return columns;
}

/** Of many tasks, those that decide about others come first, then those that run, those that wait, and the others. */
const ranks: Readonly<Record<string, number>> = { FAIL: 0, GONE: 0, STOP: 0, WORK: 1, TAKE: 1, PLAN: 2 };
const rank = ({ state }: DependencyNode): number => ranks[state ?? ""] ?? 3;

function shownIds(
  nodes: readonly DependencyNode[],
  columns: ReadonlyMap<string, number>,
  middle: string,
): ReadonlySet<string> {
  const byColumn = new Map<number, DependencyNode[]>();
  for (const node of nodes) {
    const column = columns.get(node.id);
    if (column === undefined || node.id === middle) continue;
    byColumn.set(column, [...(byColumn.get(column) ?? []), node]);
  }
  const kept = [...byColumn.values()].flatMap((all) =>
    // A box for a single further task would take as much space as the task itself.
    all.length <= maxPerColumn + 1
      ? all
      : all.toSorted((a, b) => rank(a) - rank(b) || compareIds(a.id, b.id)).slice(0, maxPerColumn),
  );
  return new Set([middle, ...kept.map((node) => node.id).toSorted(compareIds)]);
}

interface Way {
  readonly through: Item[];
  readonly status: string | null;
}

function itemsOf(
  { nodes, edges }: Graph,
  columns: ReadonlyMap<string, number>,
  shown: ReadonlySet<string>,
): { items: ReadonlyMap<string, Item>; ways: Way[]; more: ReadonlyMap<string, MoreCount> } {
  const items = new Map<string, Item>();
  const ways = new Map<string, Way>();
  const more = new Map<string, MoreCount>();
  const itemIn = (column: number, key: string, height: number): Item => {
    const item = items.get(key) ?? { key, column, height, left: new Set(), right: new Set(), y: 0 };
    items.set(key, item);
    return item;
  };
  const moreIn = (column: number): Item => itemIn(column, moreKey(column), moreHeight);
  const itemOf = (id: string): Item | null => {
    const column = columns.get(id);
    if (column === undefined) return null;
    return shown.has(id) ? itemIn(column, id, boxHeight) : moreIn(column);
  };
  const connect = (from: Item, to: Item, status: string | null): void => {
    const name = `${from.key} > ${to.key}`;
    if (from.column >= to.column || ways.has(name)) return;
    // Lines from the same item share a lane.
    const lanes = Array.from({ length: to.column - from.column - 1 }, (_, index) =>
      itemIn(from.column + index + 1, `lane ${from.column + index + 1} ${from.key}`, laneHeight),
    );
    const through = [from, ...lanes, to];
    const isOne = !isMore(from) && !isMore(to);
    ways.set(name, { through, status: isOne ? status : null });
    for (const [index, right] of through.entries()) {
      const left = through[index - 1];
      if (left === undefined) continue;
      left.right.add(right);
      right.left.add(left);
    }
  };
  /** Connects a task with a box that stands for tasks that the graph does not contain. */
  const addMore = (box: Item, count: number, side: -1 | 1): void => {
    if (count <= 0) return;
    const others = moreIn(box.column + side);
    const known = more.get(others.key);
    more.set(others.key, { count: (known?.count ?? 0) + count, exact: known === undefined });
    connect(side < 0 ? others : box, side < 0 ? box : others, null);
  };
  for (const id of shown) itemOf(id);
  // A task on the left can have further dependents, and one on the right further predecessors. These are not drawn.
  for (const { id, morePredecessors, moreDependents } of nodes) {
    const box = itemOf(id);
    if (box !== null && box.column <= 0) addMore(box, morePredecessors, -1);
    if (box !== null && box.column >= 0) addMore(box, moreDependents, 1);
  }
  for (const { id } of nodes) {
    const box = itemOf(id);
    if (box === null || shown.has(id)) continue;
    const known = more.get(box.key);
    more.set(box.key, { count: (known?.count ?? 0) + 1, exact: known?.exact ?? true });
  }
  for (const { predecessor, task, status } of edges) {
    const [from, to] = [itemOf(predecessor), itemOf(task)];
    if (from !== null && to !== null) connect(from, to, status);
  }
  return { items, ways: [...ways.values()], more };
}

/** Orders the items of each column so that few lines cross, and sets the items' heights. */
function arrange(items: ReadonlyMap<string, Item>): void {
  const columns = new Map<number, Item[]>();
  for (const item of items.values()) columns.set(item.column, [...(columns.get(item.column) ?? []), item]);
  const outwards = [...columns.keys()].toSorted((a, b) => Math.abs(a) - Math.abs(b) || a - b);
  for (const column of columns.values()) stack(column);
  const nearer = (item: Item): ReadonlySet<Item> => (item.column > 0 ? item.left : item.right);
  const farther = (item: Item): ReadonlySet<Item> => (item.column > 0 ? item.right : item.left);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    for (const column of outwards) order(columns, column, nearer);
    for (const column of outwards.toReversed()) order(columns, column, farther);
  }
  for (let sweep = 0; sweep < sweeps; sweep++) {
    for (const column of outwards) align(columns.get(column) ?? [], nearer);
    for (const column of outwards.toReversed()) align(columns.get(column) ?? [], farther);
  }
  for (const column of outwards) align(columns.get(column) ?? [], nearer);
}

/** The middle of the column is at 0. */
function stack(column: readonly Item[]): void {
  const total = column.reduce((sum, item) => sum + item.height + rowGap, -rowGap);
  let y = -total / 2;
  for (const item of column) {
    item.y = y + item.height / 2;
    y += item.height + rowGap;
  }
}

type Neighbours = (item: Item) => ReadonlySet<Item>;

function wanted(item: Item, neighbours: Neighbours): number {
  const near = [...neighbours(item)];
  return near.length === 0 ? item.y : near.reduce((sum, each) => sum + each.y, 0) / near.length;
}

/** Orders a column by the heights of the items' neighbours. Items of the same height keep their order. */
function order(columns: Map<number, Item[]>, column: number, neighbours: Neighbours): void {
  const ordered = (columns.get(column) ?? [])
    .map((item) => ({ item, at: wanted(item, neighbours) }))
    .toSorted((a, b) => Number(isMore(a.item)) - Number(isMore(b.item)) || a.at - b.at)
    .map(({ item }) => item);
  stack(ordered);
  columns.set(column, ordered);
}

/** A box that stands for several tasks is the last one of its column. */
const isMore = (item: Item): boolean => item.key.startsWith("more ");

/** Isotonic regression (pool adjacent violators): as near to the neighbours as the order and the distances allow. */
function align(column: readonly Item[], neighbours: Neighbours): void {
  let below = 0;
  const pools: { sum: number; size: number }[] = [];
  const offsets = column.map((item, index) => {
    const previous = column[index - 1];
    if (previous !== undefined) below += previous.height / 2 + rowGap + item.height / 2;
    return below;
  });
  for (const [index, item] of column.entries()) {
    let pool = { sum: wanted(item, neighbours) - (offsets[index] ?? 0), size: 1 };
    for (
      let last = pools.at(-1);
      last !== undefined && last.sum / last.size >= pool.sum / pool.size;
      last = pools.at(-1)
    ) {
      pools.pop();
      pool = { sum: last.sum + pool.sum, size: last.size + pool.size };
    }
    pools.push(pool);
  }
  const starts = pools.flatMap(({ sum, size }) => Array.from({ length: size }, () => sum / size));
  for (const [index, item] of column.entries()) item.y = (starts[index] ?? 0) + (offsets[index] ?? 0);
}

function pathThrough(points: readonly { readonly x: number; readonly y: number }[]): string {
  const parts: string[] = [];
  for (const [index, { x, y }] of points.entries()) {
    const previous = points[index - 1];
    if (previous !== undefined) {
      const middle = x - columnGap / 2;
      parts.push(`C${middle} ${previous.y} ${middle} ${y} ${x} ${y}`);
    }
    if (index === 0) parts.push(`M${x + boxWidth} ${y}`);
    else if (index < points.length - 1) parts.push(`H${x + boxWidth}`);
  }
  return parts.join("");
}

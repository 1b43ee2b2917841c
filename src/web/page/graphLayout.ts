/** A task in a graph of dependencies. */
export interface GraphTask {
  readonly id: string;
  readonly state: string;
}

/** `after` waits for `before`, which has the smaller id. */
export interface GraphEdge {
  readonly before: string;
  readonly after: string;
}

/** Neighbours of a task that the graph does not contain: how many it waits for, or how many wait for it. */
export interface LeftOut {
  readonly task: string;
  readonly side: "before" | "after";
  readonly count: number;
}

export interface Graph<Task extends GraphTask> {
  readonly tasks: readonly Task[];
  readonly edges: readonly GraphEdge[];
  readonly leftOut: readonly LeftOut[];
}

/** The place of a box, in px. */
interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The box of a task. */
export interface TaskBox<Task extends GraphTask> extends Place {
  readonly task: Task;
}

/** A box that stands for tasks that are not drawn. */
export interface MoreBox extends Place {
  readonly key: string;
  readonly count: number;
}

/** A line from the right side of a box to the left side of another one. */
export interface Line {
  /** The id of a task, or the key of a box that stands for several. */
  readonly from: string;
  readonly to: string;
  /** An SVG path. */
  readonly path: string;
  /** Where the line ends. */
  readonly x: number;
  readonly y: number;
}

export interface Layout<Task extends GraphTask> {
  readonly width: number;
  readonly height: number;
  /** By column from left to right, and within a column from top to bottom. */
  readonly boxes: readonly TaskBox<Task>[];
  readonly more: readonly MoreBox[];
  readonly lines: readonly Line[];
}

/** How many tasks a column shows at most. */
export const maxPerColumn = 8;

const boxWidth = 196;
const boxHeight = 50;
const moreHeight = 28;
/** Height of the lane in which a line passes a column. */
const laneHeight = 8;
const columnGap = 60;
const rowGap = 12;
const sweeps = 3;

/** Something that takes up space in a column: a task, a box that stands for several, or the lane of a passing line. */
interface Item {
  readonly key: string;
  readonly column: number;
  readonly height: number;
  /** Items in the column to the left and to the right to which lines lead. */
  readonly left: Set<Item>;
  readonly right: Set<Item>;
  /** The middle of the item. */
  y: number;
}

/**
 * Places the tasks around one of them in columns: what it waits for to the left, what waits for it to the right. Each
 * task is to the right of all that it waits for. The result depends on nothing but the arguments. Tasks that are not
 * connected with the one in the middle are left out.
 */
export function layoutGraph<Task extends GraphTask>(graph: Graph<Task>, middle: string): Layout<Task> {
  const columns = columnsOf(graph, middle);
  const shown = shownTasks(graph.tasks, columns, middle);
  const { items, hops, counts } = itemsOf(graph, columns, shown);
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
  const tasks = new Map(graph.tasks.map((task) => [task.id, task]));
  return {
    width: (last - first) * (boxWidth + columnGap) + boxWidth,
    height: round(bottom - top),
    boxes: ordered.flatMap((item) => {
      const task = tasks.get(item.key);
      return task === undefined ? [] : [{ ...place(item), task }];
    }),
    more: ordered.flatMap((item) => {
      const count = counts.get(item.key);
      return count === undefined ? [] : [{ ...place(item), key: item.key, count }];
    }),
    lines: hops.map((hop) => {
      const points = hop.map((item) => ({ x: left(item), y: round(item.y - top) }));
      const end = points.at(-1) ?? { x: 0, y: 0 };
      return { from: hop[0]?.key ?? "", to: hop.at(-1)?.key ?? "", path: pathThrough(points), ...end };
    }),
  };
}

const round = (px: number): number => Math.round(px * 2) / 2;

/** Compares ids. They are strings because a number cannot represent all of them. */
function compareIds(a: string, b: string): number {
  const difference = BigInt(a) - BigInt(b);
  return difference < 0n ? -1 : Number(difference > 0n);
}

/**
 * Returns the column of each task that the one in the middle waits for (negative) or that waits for it (positive), also
 * indirectly. The column is the length of the longest way.
 */
function columnsOf({ tasks, edges }: Graph<GraphTask>, middle: string): Map<string, number> {
  const columns = new Map([[middle, 0]]);
  const known = new Set(tasks.map((task) => task.id));
  const inOrder = edges
    .filter(({ before, after }) => known.has(before) && known.has(after) && compareIds(before, after) < 0)
    .toSorted((a, b) => compareIds(a.before, b.before) || compareIds(a.after, b.after));
  // What a task waits for has a smaller id, so each column is final before it is used.
  for (const { before, after } of inOrder) {
    const column = columns.get(before);
    if (column !== undefined) columns.set(after, Math.max(column + 1, columns.get(after) ?? 0));
  }
  for (const { before, after } of inOrder.toSorted((a, b) => compareIds(b.after, a.after))) {
    const column = columns.get(after);
    if (column !== undefined && column <= 0) {
      columns.set(before, Math.min(column - 1, columns.get(before) ?? 0));
    }
  }
  return columns;
}

/** Tasks that decide about others come first, then those that run, those that wait, and those that are done. */
const ranks: Readonly<Record<string, number>> = { FAIL: 0, GONE: 0, STOP: 0, WORK: 1, TAKE: 1, PLAN: 2 };
const rank = (task: GraphTask): number => ranks[task.state] ?? 3;

/** Returns the tasks that get a box, by their ids. */
function shownTasks(tasks: readonly GraphTask[], columns: ReadonlyMap<string, number>, middle: string): Set<string> {
  const byColumn = new Map<number, GraphTask[]>();
  for (const task of tasks) {
    const column = columns.get(task.id);
    if (column === undefined || task.id === middle) continue;
    byColumn.set(column, [...(byColumn.get(column) ?? []), task]);
  }
  const kept = [...byColumn.values()].flatMap((all) =>
    all.length <= maxPerColumn
      ? all
      : all.toSorted((a, b) => rank(a) - rank(b) || compareIds(a.id, b.id)).slice(0, maxPerColumn),
  );
  return new Set([middle, ...kept.map((task) => task.id).toSorted(compareIds)]);
}

/**
 * Returns the items of all columns, the items through which each line leads, and for each box that stands for several
 * tasks their number.
 */
function itemsOf(
  { tasks, edges, leftOut }: Graph<GraphTask>,
  columns: ReadonlyMap<string, number>,
  shown: ReadonlySet<string>,
): { items: Map<string, Item>; hops: Item[][]; counts: Map<string, number> } {
  const items = new Map<string, Item>();
  const counts = new Map<string, number>();
  const hops = new Map<string, Item[]>();
  const item = (key: string, column: number, height: number): Item => {
    const created = items.get(key) ?? { key, column, height, left: new Set(), right: new Set(), y: 0 };
    items.set(key, created);
    return created;
  };
  const itemOf = (id: string): Item | null => {
    const column = columns.get(id);
    if (column === undefined) return null;
    return shown.has(id) ? item(id, column, boxHeight) : moreIn(column);
  };
  const moreIn = (column: number): Item => item(`more ${column}`, column, moreHeight);
  const connect = (from: Item, to: Item): void => {
    const name = `${from.key} > ${to.key}`;
    if (from.column >= to.column || hops.has(name)) return;
    const way = [from];
    for (let column = from.column + 1; column < to.column; column++) {
      // Lines from the same task share a lane.
      way.push(item(`lane ${column} ${from.key}`, column, laneHeight));
    }
    way.push(to);
    hops.set(name, way);
    for (const [index, right] of way.slice(1).entries()) {
      way[index]?.right.add(right);
      right.left.add(way[index] ?? right);
    }
  };
  for (const id of shown) itemOf(id);
  for (const { id } of tasks.filter((task) => !shown.has(task.id))) {
    const box = itemOf(id);
    if (box !== null) counts.set(box.key, (counts.get(box.key) ?? 0) + 1);
  }
  for (const { before, after } of edges) {
    const [from, to] = [itemOf(before), itemOf(after)];
    if (from !== null && to !== null) connect(from, to);
  }
  for (const { task, side, count } of leftOut) {
    const box = itemOf(task);
    if (box === null || count <= 0) continue;
    const more = moreIn(box.column + (side === "before" ? -1 : 1));
    counts.set(more.key, (counts.get(more.key) ?? 0) + count);
    if (side === "before") connect(more, box);
    else connect(box, more);
  }
  return { items, hops: [...hops.values()], counts };
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

/** Places the items of a column one below the other, with the middle of all of them at 0. */
function stack(column: readonly Item[]): void {
  const total = column.reduce((sum, item) => sum + item.height + rowGap, -rowGap);
  let y = -total / 2;
  for (const item of column) {
    item.y = y + item.height / 2;
    y += item.height + rowGap;
  }
}

type Neighbours = (item: Item) => ReadonlySet<Item>;

/** Returns the mean height of an item's neighbours, or its own height if there are none. */
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

/**
 * Moves the items of a column as near as possible to the heights of their neighbours (least squares), keeping their
 * order and their distances. This is an isotonic regression by the pool adjacent violators algorithm.
 */
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
    for (let last = pools.at(-1); last !== undefined && last.sum / last.size >= pool.sum / pool.size; last = pools.at(-1)) {
      pools.pop();
      pool = { sum: last.sum + pool.sum, size: last.size + pool.size };
    }
    pools.push(pool);
  }
  const starts = pools.flatMap(({ sum, size }) => Array.from({ length: size }, () => sum / size));
  for (const [index, item] of column.entries()) item.y = (starts[index] ?? 0) + (offsets[index] ?? 0);
}

/** Returns a path from the right side of the first item through the lanes to the left side of the last one. */
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

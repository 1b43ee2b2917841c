import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readSummaries, type TaskSummary } from "./taskSummary.js";
import { Window } from "./scanWindow.js";

/** How far back a chain of parents is followed, and how many descendants are told. */
const mostAncestors = 100;
const mostDescendants = 100;

/** A task that came from another one, or from one that did: those from the task itself have depth 1. */
export interface Descendant extends TaskSummary {
  readonly depth: number;
}

/** Where a task came from, and what came from it. */
export interface Chain {
  /** Its parent, that one's, and so on: the nearest first. */
  readonly ancestors: TaskSummary[];
  /** False when there are more of them than were followed. */
  readonly ancestorsComplete: boolean;
  /** Each followed by its own, the smaller id first. */
  readonly descendants: Descendant[];
  /** False when there are more, or not all rows behind the task were looked through. */
  readonly descendantsComplete: boolean;
}

/**
 * The whole chain of a task, as far as its rows are there.
 *
 * @param request.patienceMs how long rows are looked through for descendants where no index has `parent`
 */
export async function readChain(
  client: Client,
  table: TaskTable,
  id: string,
  { characters, patienceMs }: { readonly characters: number; readonly patienceMs: number },
): Promise<Chain> {
  const up = await ancestorIds(client, table, id);
  const line = await descendantLine(client, table, id, patienceMs);
  const placed = inOrder(id, line.parents);
  const depths = new Map(placed.map(({ id: each, depth }) => [each, depth]));
  const below = await readSummaries(
    client,
    table,
    placed.map((each) => each.id),
    characters,
  );
  return {
    ancestors: await readSummaries(client, table, up.slice(0, mostAncestors), characters),
    ancestorsComplete: up.length <= mostAncestors,
    descendants: below.map((task) => ({ ...task, depth: depths.get(task.id) ?? 1 })),
    descendantsComplete: line.complete,
  };
}

/** The nearest first, one more than are followed if there are so many; a circle is gone round once. */
async function ancestorIds(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `WITH RECURSIVE chain AS (
       SELECT t.parent::bigint AS id, ARRAY[t.id::bigint] AS passed FROM ${qualified} AS t WHERE t.id = $1::bigint
       UNION ALL
       SELECT t.parent::bigint, c.passed || c.id FROM chain AS c JOIN ${qualified} AS t ON t.id = c.id
       WHERE c.id <> ALL (c.passed) AND cardinality(c.passed) <= ${mostAncestors}
     )
     SELECT c.id::text AS id FROM chain AS c
     WHERE c.id IS NOT NULL AND c.id <> ALL (c.passed) ORDER BY cardinality(c.passed)`,
    [id],
  );
  return rows.map((row) => row.id);
}

interface Line {
  /** Of each descendant its parent. */
  readonly parents: ReadonlyMap<string, string>;
  readonly complete: boolean;
}

async function descendantLine(
  client: Client,
  table: TaskTable,
  id: string,
  patienceMs: number,
): Promise<Line> {
  return (await hasParentIndex(client, table))
    ? await lineByIndex(client, table, id)
    : await lineByLooking(client, table, id, patienceMs);
}

async function hasParentIndex(client: Client, { qualified }: TaskTable): Promise<boolean> {
  const { rowCount } = await client.query(
    `SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_attribute AS a
       ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
     WHERE i.indrelid = $1::regclass AND i.indisvalid AND i.indpred IS NULL AND a.attname = 'parent'`,
    [qualified],
  );
  return rowCount !== 0;
}

/** Generation after generation. */
async function lineByIndex(client: Client, { qualified }: TaskTable, id: string): Promise<Line> {
  const parents = new Map<string, string>();
  let generation = [id];
  while (generation.length > 0) {
    const { rows } = await client.query<{ id: string; parent: string }>(
      `SELECT t.id::text AS id, t.parent::text AS parent FROM ${qualified} AS t
       WHERE t.parent = ANY ($1::bigint[]) ORDER BY t.id LIMIT ${mostDescendants + 1}`,
      [generation],
    );
    const next = rows.filter((row) => row.id !== id && !parents.has(row.id));
    for (const row of next) {
      if (parents.size === mostDescendants) return { parents, complete: false };
      parents.set(row.id, row.parent);
    }
    if (rows.length > mostDescendants) return { parents, complete: false };
    generation = next.map((row) => row.id);
  }
  return { parents, complete: true };
}

/** A child has a larger id than its parent: one way through the rows behind a task finds all. */
async function lineByLooking(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  patienceMs: number,
): Promise<Line> {
  const began = performance.now();
  const parents = new Map<string, string>();
  const window = new Window();
  for (let after = id; ;) {
    const size = window.rows;
    const from = after;
    const { rows } = await window.timed(() =>
      client.query<{ looked: number; last: string; ids: string[]; parents: string[] }>(
        `WITH seen AS MATERIALIZED (
           SELECT t.id, t.parent FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT ${size}
         )
         SELECT count(*)::integer AS looked, coalesce(max(id)::text, '') AS last,
           ARRAY(SELECT id::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS ids,
           ARRAY(SELECT parent::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS parents
         FROM seen`,
        [from, id],
      ),
    );
    const [row = { looked: 0, last: "", ids: [], parents: [] }] = rows;
    for (const [place, child] of row.ids.entries()) {
      const parent = row.parents[place] ?? "";
      if (parent !== id && !parents.has(parent)) continue;
      if (parents.size === mostDescendants) return { parents, complete: false };
      parents.set(child, parent);
    }
    if (row.looked < size) return { parents, complete: true };
    if (performance.now() - began > patienceMs) return { parents, complete: false };
    after = row.last;
  }
}

/** Each behind its parent, with its depth. */
function inOrder(id: string, parents: Line["parents"]): { id: string; depth: number }[] {
  const children = new Map<string, string[]>();
  for (const [child, parent] of parents) {
    children.set(parent, [...(children.get(parent) ?? []), child]);
  }
  const placed: { id: string; depth: number }[] = [];
  const place = (parent: string, depth: number): void => {
    for (const child of children.get(parent) ?? []) {
      placed.push({ id: child, depth });
      place(child, depth + 1);
    }
  };
  place(id, 1);
  return placed;
}

import type { TaskSummary } from "../types.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readSummaries } from "./taskSummary.js";
import { ScanWindow } from "./scanWindow.js";

/** Maximum numbers of ancestors and descendants. */
const maxAncestors = 100;
const maxDescendants = 100;

/** A descendant of a task. The task's children have depth 1. */
export interface Descendant extends TaskSummary {
  readonly depth: number;
}

/** A task's ancestors and descendants. */
export interface TaskChain {
  /** The task's ancestors, nearest first. */
  readonly ancestors: TaskSummary[];
  /** False if there are more ancestors than these. */
  readonly ancestorsComplete: boolean;
  /** The task's descendants in depth-first order. Siblings are in ascending order of their ids. */
  readonly descendants: Descendant[];
  /** False if there are more descendants than these, or if not all later rows were scanned. */
  readonly descendantsComplete: boolean;
}

/**
 * Reads a task's chain (its ancestors and descendants), as far as their rows still exist.
 *
 * @param request.scanLimitMs limit on the time of scanning for descendants, in ms; applies if `parent` is not indexed
 */
export async function readChain(
  client: Client,
  table: TaskTable,
  id: string,
  { characters, scanLimitMs }: { readonly characters: number; readonly scanLimitMs: number },
): Promise<TaskChain> {
  const ancestors = await readAncestorIds(client, table, id);
  const found = await readDescendants(client, table, id, scanLimitMs);
  const ordered = depthFirst(id, found.parents);
  const depths = new Map(ordered.map(({ id: each, depth }) => [each, depth]));
  const below = await readSummaries(
    client,
    table,
    ordered.map((each) => each.id),
    characters,
  );
  return {
    ancestors: await readSummaries(client, table, ancestors.slice(0, maxAncestors), characters),
    ancestorsComplete: ancestors.length <= maxAncestors,
    descendants: below.map((task) => ({ ...task, depth: depths.get(task.id) ?? 1 })),
    descendantsComplete: found.complete,
  };
}

/**
 * Returns the ids of a task's ancestors, nearest first. If there are more ancestors than the maximum, returns one id
 * more than the maximum. If the parents form a cycle, each ancestor is returned once.
 */
async function readAncestorIds(client: Client, { qualified }: TaskTable, id: string): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `WITH RECURSIVE chain AS (
       SELECT t.parent::bigint AS id, ARRAY[t.id::bigint] AS passed FROM ${qualified} AS t WHERE t.id = $1::bigint
       UNION ALL
       SELECT t.parent::bigint, c.passed || c.id FROM chain AS c JOIN ${qualified} AS t ON t.id = c.id
       WHERE c.id <> ALL (c.passed) AND cardinality(c.passed) <= ${maxAncestors}
     )
     SELECT c.id::text AS id FROM chain AS c
     WHERE c.id IS NOT NULL AND c.id <> ALL (c.passed) ORDER BY cardinality(c.passed)`,
    [id],
  );
  return rows.map((row) => row.id);
}

interface Descendants {
  /** Maps the id of each descendant to the id of its parent. */
  readonly parents: ReadonlyMap<string, string>;
  readonly complete: boolean;
}

async function readDescendants(
  client: Client,
  table: TaskTable,
  id: string,
  scanLimitMs: number,
): Promise<Descendants> {
  return (await hasParentIndex(client, table))
    ? await readByIndex(client, table, id)
    : await readByScan(client, table, id, scanLimitMs);
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

/** Reads descendants by an index on `parent`, one generation at a time. */
async function readByIndex(client: Client, { qualified }: TaskTable, id: string): Promise<Descendants> {
  const parents = new Map<string, string>();
  let generation = [id];
  while (generation.length > 0) {
    const { rows } = await client.query<{ id: string; parent: string }>(
      `SELECT t.id::text AS id, t.parent::text AS parent FROM ${qualified} AS t
       WHERE t.parent = ANY ($1::bigint[]) ORDER BY t.id LIMIT ${maxDescendants + 1}`,
      [generation],
    );
    const next = rows.filter((row) => row.id !== id && !parents.has(row.id));
    for (const row of next) {
      if (parents.size === maxDescendants) return { parents, complete: false };
      parents.set(row.id, row.parent);
    }
    if (rows.length > maxDescendants) return { parents, complete: false };
    generation = next.map((row) => row.id);
  }
  return { parents, complete: true };
}

/**
 * Reads descendants by scanning the rows after the task. A child has a larger id than its parent, so a single scan
 * finds all descendants.
 */
async function readByScan(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  scanLimitMs: number,
): Promise<Descendants> {
  const began = performance.now();
  const parents = new Map<string, string>();
  const window = new ScanWindow();
  for (let after = id; ;) {
    const size = window.rows;
    const from = after;
    const { rows } = await window.timed(() =>
      client.query<{ scanned: number; last: string; ids: string[]; parents: string[] }>(
        `WITH seen AS MATERIALIZED (
           SELECT t.id, t.parent FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT ${size}
         )
         SELECT count(*)::integer AS scanned, coalesce(max(id)::text, '') AS last,
           ARRAY(SELECT id::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS ids,
           ARRAY(SELECT parent::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS parents
         FROM seen`,
        [from, id],
      ),
    );
    const [row = { scanned: 0, last: "", ids: [], parents: [] }] = rows;
    for (const [index, child] of row.ids.entries()) {
      const parent = row.parents[index] ?? "";
      if (parent !== id && !parents.has(parent)) continue;
      if (parents.size === maxDescendants) return { parents, complete: false };
      parents.set(child, parent);
    }
    if (row.scanned < size) return { parents, complete: true };
    if (performance.now() - began > scanLimitMs) return { parents, complete: false };
    after = row.last;
  }
}

/** Returns the descendants with their depths. Each descendant comes after its parent. */
function depthFirst(id: string, parents: Descendants["parents"]): { id: string; depth: number }[] {
  const children = new Map<string, string[]>();
  for (const [child, parent] of parents) {
    children.set(parent, [...(children.get(parent) ?? []), child]);
  }
  const ordered: { id: string; depth: number }[] = [];
  const visit = (parent: string, depth: number): void => {
    for (const child of children.get(parent) ?? []) {
      ordered.push({ id: child, depth });
      visit(child, depth + 1);
    }
  };
  visit(id, 1);
  return ordered;
}

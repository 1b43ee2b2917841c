import { queryOne } from "../queryOne.js";
import type { TaskSummary } from "../types.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { batched } from "../batched.js";
import { readSummaries } from "./listTasks.js";
import { windows, type WindowRow } from "./scan.js";

const maxAncestors = 100;
const maxDescendants = 100;

/** A descendant of a task. The task's children have depth 1. */
export interface Descendant extends TaskSummary {
  readonly depth: number;
}

export interface TaskChain {
  readonly ancestors: TaskSummary[];
  readonly ancestorsComplete: boolean;
  /** In depth-first order. Siblings are in ascending order of their ids. */
  readonly descendants: Descendant[];
  /** False if there are more descendants than these, or if not all later rows were scanned. */
  readonly descendantsComplete: boolean;
}

/** @param request.scanLimitMs limit on the time of scanning for descendants; applies if `parent` is not indexed */
export async function readChain(
  client: Queryable,
  table: TaskTable,
  id: string,
  { characters, scanLimitMs }: { readonly characters: number; readonly scanLimitMs: number },
): Promise<TaskChain> {
  const reader = batched(client);
  const [[ancestors, ancestorsComplete], [descendants, descendantsComplete]] = await Promise.all([
    readAncestorIds(reader, table, id).then(async (ids) => {
      const above = await readSummaries(reader, table, ids.slice(0, maxAncestors), characters);
      return [above, ids.length <= maxAncestors] as const;
    }),
    readByScan(reader, table, id, scanLimitMs).then(async (scanned) => {
      const { parents, complete } = scanned ?? (await readByIndex(reader, table, id));
      const depths = depthFirst(id, parents);
      const below = await readSummaries(reader, table, [...depths.keys()], characters);
      return [below.map((task) => ({ ...task, depth: depths.get(task.id) ?? 1 })), complete] as const;
    }),
  ]);
  return { ancestors, ancestorsComplete, descendants, descendantsComplete };
}

/** Nearest first, and at most one more than the maximum. If the parents form a cycle, each is returned once. */
async function readAncestorIds(client: Queryable, { qualified }: TaskTable, id: string): Promise<string[]> {
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
  readonly parents: ReadonlyMap<string, string>;
  readonly complete: boolean;
}

const hasParentIndex = ({ qualified }: TaskTable): string =>
  `EXISTS (SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_attribute AS a
     ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
   WHERE i.indrelid = ${literal(qualified)}::regclass AND i.indisvalid AND i.indpred IS NULL AND a.attname = 'parent')`;

/** One generation at a time. */
async function readByIndex(client: Queryable, { qualified }: TaskTable, id: string): Promise<Descendants> {
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

/** A child has a larger id than its parent, so one scan finds all. Null if `parent` is indexed. */
async function readByScan(
  client: Queryable,
  table: TaskTable,
  id: string,
  scanLimitMs: number,
): Promise<Descendants | null> {
  const end = performance.now() + scanLimitMs;
  const parents = new Map<string, string>();
  const read = async (size: number, after: string | undefined): Promise<Window> => {
    return await queryOne<Window>(
      client,
      `WITH indexed AS MATERIALIZED (SELECT ${hasParentIndex(table)} AS yes), seen AS MATERIALIZED (
         SELECT t.id, t.parent FROM ${table.qualified} AS t
         WHERE t.id > $1::bigint AND NOT (SELECT yes FROM indexed) ORDER BY t.id LIMIT ${size}
       )
       SELECT (SELECT yes FROM indexed) AS indexed, count(*)::integer AS scanned, coalesce(max(id)::text, '') AS last,
         ARRAY(SELECT id::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS ids,
         ARRAY(SELECT parent::text FROM seen WHERE parent >= $2::bigint ORDER BY seen.id) AS parents
       FROM seen`,
      [after, id],
    );
  };
  for await (const window of windows(read, id)) {
    if (window.indexed) return null;
    for (const [index, child] of window.ids.entries()) {
      const parent = window.parents[index] ?? "";
      if (parent !== id && !parents.has(parent)) continue;
      if (parents.size === maxDescendants) return { parents, complete: false };
      parents.set(child, parent);
    }
    if (!window.isLast && performance.now() > end) return { parents, complete: false };
  }
  return { parents, complete: true };
}

interface Window extends WindowRow {
  readonly indexed: boolean;
  readonly ids: readonly string[];
  readonly parents: readonly string[];
}

/** Each descendant comes after its parent. */
function depthFirst(id: string, parents: Descendants["parents"]): Map<string, number> {
  const children = new Map<string, string[]>();
  for (const [child, parent] of parents) {
    children.set(parent, [...(children.get(parent) ?? []), child]);
  }
  const depths = new Map<string, number>();
  const visit = (parent: string, depth: number): void => {
    for (const child of children.get(parent) ?? []) {
      depths.set(child, depth);
      visit(child, depth + 1);
    }
  };
  visit(id, 1);
  return depths;
}

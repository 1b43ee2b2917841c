import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { isActiveSql, isHeldSql, isToLookUpSql, isoTimeSql } from "../sqlFragments.js";
import { mayRead } from "../queryOne.js";
import { windows, type WindowRow } from "./scan.js";

const maxInDirection = 100;
const maxLevels = 20;
const maxWidth = 30;

/** The maximum number of predecessors that one statement examines, to show those first that have not ended as DONE. */
const maxExamined = 20_000;

/** A task with those for which it waits or has waited, and those that wait or have waited for it. */
export interface DependencyGraph {
  readonly nodes: DependencyNode[];
  readonly edges: Dependency[];
  /** False if there may be more that have waited for this one. Those that still wait are in `moreDependents`. */
  readonly formerComplete: boolean;
}

/**
 * What a task waits for, and what waits for it. Each node counts what was left out. Of many predecessors, those that
 * failed come first, then those that have not ended.
 *
 * @param options.scanLimitMs limit on the time of scanning for tasks that have waited for this one
 * @returns null if there is no such task
 */
export async function readDependencyGraph(
  client: Client,
  table: TaskTable,
  id: string,
  { characters, scanLimitMs }: { readonly characters: number; readonly scanLimitMs: number },
): Promise<DependencyGraph | null> {
  const before = await readLevels(client, id, predecessorsSql(table));
  const behind = await readLevels(client, id, dependentsSql(table));
  const formerComplete = await scanForFormer(client, table, id, behind, scanLimitMs);
  const { nodes, edges } = await readNodes(client, table, [...new Set([id, ...before, ...behind])], characters);
  if (nodes[0]?.state === null) return null;
  return { nodes, edges, formerComplete };
}

/** True if the table has no dependencies. */
export const mayReadDependencies = async (client: Client, { qualifiedDependencies }: TaskTable): Promise<boolean> =>
  (await mayRead(client, qualifiedDependencies)) !== false;

async function readLevels(client: Client, id: string, nextLevelSql: string): Promise<Set<string>> {
  const found = new Set<string>();
  let level = [id];
  for (let depth = 0; depth < maxLevels && level.length > 0 && found.size < maxInDirection; depth++) {
    const { rows } = await client.query<{ id: string }>(nextLevelSql, [level]);
    const next = new Set(rows.map((row) => row.id).filter((each) => each !== id && !found.has(each)));
    level = [...next].slice(0, maxInDirection - found.size);
    for (const each of level) found.add(each);
  }
  return found;
}

const predecessorsSql = ({ qualified }: TaskTable): string => `
  WITH dependent AS MATERIALIZED (
    SELECT t.id, t.after[1:greatest(1, ${maxExamined} / cardinality($1::bigint[]))] AS after,
      CASE WHEN t.state::text = 'GONE' THEN substr(t.error::text, 1, 100) END AS error
    FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[])
  ), predecessor AS MATERIALIZED (
    SELECT t.id::bigint AS id, t.state::text AS state, ${isActiveSql} AS active
    FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT unnest(after) FROM dependent))
  ), ranked AS (
    SELECT task, id, row_number() OVER (PARTITION BY task ORDER BY rank, id) AS place FROM (
      SELECT d.id AS task, d.predecessor AS id, CASE
        WHEN strpos(d.error, concat('task ', d.predecessor, ', ')) > 0 THEN 0
        WHEN p.active THEN 2 WHEN p.state <> 'DONE' THEN 1 ELSE 3 END AS rank
      FROM (SELECT DISTINCT id, error, unnest(after) AS predecessor FROM dependent) AS d
      LEFT JOIN predecessor AS p ON p.id = d.predecessor
    ) AS r
  )
  SELECT id::text AS id FROM ranked WHERE place <= ${maxWidth} ORDER BY task, place`;

/** Indexes find them. */
const dependentsSql = ({ qualified, qualifiedDependencies }: TaskTable): string => `
  WITH active AS MATERIALIZED (
    SELECT t.id::bigint AS id FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) AND ${isActiveSql}
  ), line AS MATERIALIZED (
    SELECT p.id AS predecessor, d.task FROM unnest($1::bigint[]) AS p(id) CROSS JOIN LATERAL (
      SELECT d.task FROM ${qualifiedDependencies} AS d WHERE d.predecessor = p.id AND NOT d.failed
      ORDER BY d.task LIMIT ${maxWidth}
    ) AS d
  ), pair AS (
    SELECT l.predecessor, l.task FROM line AS l JOIN (
      SELECT t.id::bigint AS id FROM ${qualified} AS t
      WHERE t.id = ANY (ARRAY(SELECT task FROM line)) AND t.wait = 0 AND ${isHeldSql}
    ) AS w ON w.id = l.task
    UNION
    SELECT u.id, w.id FROM (
      SELECT t.id::bigint AS id, t.after FROM ${qualified} AS t
      WHERE ${isToLookUpSql} AND t.after && ARRAY(SELECT id FROM active)
    ) AS w CROSS JOIN LATERAL unnest(w.after) AS u(id) WHERE u.id IN (SELECT id FROM active)
  )
  SELECT task::text AS id FROM (
    SELECT task, predecessor, row_number() OVER (PARTITION BY predecessor ORDER BY task) AS place FROM pair
  ) AS p WHERE place <= ${maxWidth} ORDER BY predecessor, task`;

/**
 * No index covers tasks that have waited, so the rows after the task are scanned, as far as the time allows.
 *
 * @returns whether all rows after the task, which are all that can have waited, were scanned
 */
async function scanForFormer(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  found: Set<string>,
  scanLimitMs: number,
): Promise<boolean> {
  const end = performance.now() + scanLimitMs;
  const isOver = (): boolean => found.size >= maxInDirection || performance.now() > end;
  if (isOver()) return false;
  const read = async (size: number, after: string | undefined): Promise<WindowRow> => {
    for (;;) {
      const { rows } = await client.query<WindowRow & { ids: string[] }>(
        `WITH seen AS MATERIALIZED (
           SELECT t.id, t.after FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT ${size}
         )
         SELECT count(*)::integer AS scanned, coalesce(max(id)::text, '') AS last, ARRAY(
           SELECT id::text FROM seen WHERE after && $2::bigint[] AND id <> ALL ($2::bigint[])
           ORDER BY seen.id LIMIT ${maxWidth}) AS ids
         FROM seen`,
        [after, [id, ...found]],
      );
      const [row = { scanned: 0, last: "", ids: [] }] = rows;
      for (const each of row.ids.slice(0, maxInDirection - found.size)) found.add(each);
      // Those just found may have dependents in the same window.
      if (row.ids.length === 0 || isOver()) return row.ids.length === 0 ? row : { ...row, scanned: size };
    }
  };
  for await (const { isLast } of windows(read, id)) {
    if (isLast) return true;
    if (isOver()) return false;
  }
  return false;
}

export interface DependencyNode {
  readonly id: string;
  /** The task's state. Null if its row is gone. Everything else is null or 0 then. */
  readonly state: string | null;
  readonly group: string | null;
  /** How its predecessors have to end: `done`, `fail` or `end`. Null if it has none. */
  readonly upon: string | null;
  /** The planned time, which is the one in `due` while the task waits for others. */
  readonly plan: string | null;
  readonly input: string | null;
  readonly error: string | null;
  /** How many tasks are in `after`, and for how many of them the task still waits. */
  readonly predecessors: number;
  readonly waitsFor: number;
  readonly morePredecessors: number;
  readonly moreDependents: number;
}

export interface Dependency {
  readonly task: string;
  readonly predecessor: string;
  /**
   * - `waits`: the task waits for the predecessor.
   * - `done`: the predecessor has ended as DONE, or its row was gone when pg-task looked it up.
   * - `failed`: the predecessor has ended otherwise, or its row was deleted while the task waited for it.
   * - `over`: the task no longer waits, although the predecessor is planned or runs. For example, the predecessor was
   *   tried again after its end, or the task was stopped before.
   */
  readonly status: "waits" | "done" | "failed" | "over";
}

type NodeRow = DependencyNode & { readonly shown: readonly string[]; readonly statuses: Dependency["status"][] };

const headlineSql = (column: string, characters: number): string =>
  `split_part(btrim(substr(${column}::text, 1, ${characters}), E' \\t\\r\\n'), E'\\n', 1)`;

async function readNodes(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
  characters: number,
): Promise<{ readonly nodes: DependencyNode[]; readonly edges: Dependency[] }> {
  const { rows } = await client.query<NodeRow>(nodesSql(table, characters), [ids]);
  const nodes: DependencyNode[] = [];
  const edges: Dependency[] = [];
  for (const { shown, statuses, ...node } of rows) {
    nodes.push(node);
    for (const [place, predecessor] of shown.entries()) {
      edges.push({ task: node.id, predecessor, status: statuses[place] ?? "done" });
    }
  }
  return { nodes, edges };
}

const describedSql = (characters: number): string => `
  t.state::text AS state, t."group"::text AS "group", ${headlineSql("t.input", characters)} AS input,
  ${headlineSql("t.error", characters)} AS error`;

/** A task waits for those in the table of dependencies; before the lookup, for those in `after` that have not ended. */
function nodesSql({ qualified, qualifiedDependencies }: TaskTable, characters: number): string {
  const isShown = "u.id IN (SELECT unnest($1::bigint[]))";
  return `
WITH node AS MATERIALIZED (
  SELECT n.id, n.place, s.* FROM unnest($1::bigint[]) WITH ORDINALITY AS n(id, place) LEFT JOIN (
    SELECT t.id AS same, ${describedSql(characters)}, t.after, CASE WHEN t.after IS NOT NULL THEN coalesce(t.upon, 'done') END AS upon,
      ${isoTimeSql(`CASE WHEN ${isHeldSql} THEN t.due ELSE t.plan END`)} AS plan, ${isActiveSql} AS active,
      (${isHeldSql}) IS TRUE AS held, t.wait
    FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[])
  ) AS s ON s.same = n.id
), unseen AS MATERIALIZED (
  SELECT t.id, u.id AS predecessor FROM ${qualified} AS t CROSS JOIN LATERAL unnest(t.after) AS u(id)
  WHERE t.wait > 0 AND t.ready IS NOT NULL AND ${isHeldSql} AND ${isShown}
), edge AS (
  SELECT n.id AS task, u.id AS predecessor, CASE
    WHEN n.held AND CASE WHEN n.wait > 0 THEN p.active ELSE NOT d.failed END THEN 'waits'
    WHEN n.held AND d.failed THEN 'failed'
    WHEN n.state = 'GONE' AND strpos(n.error, concat('ERROR:  task ', u.id, ', which it waits for,')) = 1 THEN 'failed'
    WHEN p.active THEN 'over' WHEN p.state <> 'DONE' THEN 'failed' ELSE 'done' END AS status
  FROM node AS n CROSS JOIN LATERAL (SELECT DISTINCT u.id FROM unnest(n.after) AS u(id) WHERE ${isShown}) AS u
  JOIN node AS p ON p.id = u.id
  LEFT JOIN ${qualifiedDependencies} AS d ON d.task = n.id AND d.predecessor = u.id
), dependents AS (
  SELECT predecessor AS id, sum(number) AS number FROM (
    SELECT d.predecessor, count(*) AS number FROM ${qualifiedDependencies} AS d JOIN ${qualified} AS t ON t.id = d.task
    WHERE d.predecessor = ANY ($1::bigint[]) AND NOT d.failed AND t.wait = 0 AND ${isHeldSql} GROUP BY d.predecessor
    UNION ALL SELECT predecessor, count(DISTINCT id) FROM unseen WHERE predecessor IN (SELECT id FROM node WHERE active) GROUP BY predecessor
    UNION ALL SELECT predecessor, -count(*) FROM edge WHERE status = 'waits' GROUP BY predecessor
  ) AS d GROUP BY predecessor
)
SELECT n.id::text AS id, n.state, n."group", n.upon, n.plan, n.input, n.error, e.shown, e.statuses,
  e.number AS predecessors, e.number - cardinality(e.shown) AS "morePredecessors",
  (CASE WHEN NOT n.held THEN 0 WHEN n.wait > 0 THEN (
    SELECT count(*) FROM ${qualified} AS t WHERE t.id = ANY (n.after) AND ${isActiveSql})
   ELSE (SELECT count(*) FROM ${qualifiedDependencies} AS d WHERE d.task = n.id AND NOT d.failed) END)::float8 AS "waitsFor",
  coalesce(greatest((SELECT d.number FROM dependents AS d WHERE d.id = n.id), 0), 0)::float8 AS "moreDependents"
FROM node AS n CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(predecessor::text ORDER BY predecessor), '{}') AS shown,
    coalesce(array_agg(status ORDER BY predecessor), '{}') AS statuses,
    (SELECT count(DISTINCT u.id) FROM unnest(n.after) AS u(id))::integer AS number
  FROM edge WHERE task = n.id
) AS e ORDER BY n.place`;
}

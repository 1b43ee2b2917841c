import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { isoTimeSql } from "../sqlFragments.js";
import { isActiveSql, isHeldSql } from "./waitingTasks.js";

/** A task of a graph of dependencies. */
export interface DependencyNode {
  readonly id: string;
  /** The task's state. Null if its row is gone. Everything else is null or 0 then. */
  readonly state: string | null;
  readonly group: string | null;
  /** How its predecessors have to end: `done`, `fail` or `end`. Null if it has none. */
  readonly upon: string | null;
  /** The planned time, which is the one in `due` while the task waits for others. */
  readonly plan: string | null;
  /** The first line of the input and of the error, truncated. */
  readonly input: string | null;
  readonly error: string | null;
  /** How many tasks are in `after`, and for how many of them the task still waits. */
  readonly predecessors: number;
  readonly waitsFor: number;
  /** How many of its predecessors are not in the graph. */
  readonly morePredecessors: number;
  /** How many tasks that wait for this one are not in the graph. */
  readonly moreDependents: number;
}

/** That one task waits, or has waited, for the end of another one. */
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

/** SQL of the first line of a text, of at most so many characters. */
const headlineSql = (column: string, characters: number): string =>
  `split_part(btrim(substr(${column}::text, 1, ${characters}), E' \\t\\r\\n'), E'\\n', 1)`;

/** Reads these tasks in this order, and the dependencies between them. */
export async function readNodes(
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

/**
 * A task whose predecessors have been looked up waits for those in the table of dependencies. Before that, it waits for
 * those in `after` that have not ended.
 */
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

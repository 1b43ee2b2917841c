import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readDependents } from "./dependents.js";
import { readNodes, type Dependency, type DependencyNode } from "./dependencyNodes.js";
import { isActiveSql, maxInDirection, maxLevels, maxWidth } from "./waitingTasks.js";

/** The maximum number of predecessors that one statement examines, to show those first that have not ended as DONE. */
const maxExamined = 20_000;

/** A task with those for which it waits or has waited, and those that wait or have waited for it. */
export interface DependencyGraph {
  /** The task itself comes first. */
  readonly nodes: DependencyNode[];
  /** The dependencies between these tasks. */
  readonly edges: Dependency[];
  /**
   * False if there may be more tasks that have waited for this one. Those that still wait are found by an index, and
   * counted in `moreDependents`.
   */
  readonly formerComplete: boolean;
}

/**
 * Reads what a task waits for, and what waits for it, over several levels. The graph has at most 201 nodes: 100 in each
 * direction, 20 levels, and 30 for each task and direction. Each node counts what was left out. Of many predecessors,
 * those that failed come first, then those that have not ended.
 *
 * @param options.characters maximum length of input and error of a node
 * @param options.scanLimitMs limit on the time of scanning for tasks that have waited for this one, in ms
 * @returns null if there is no such task
 */
export async function readDependencyGraph(
  client: Client,
  table: TaskTable,
  id: string,
  { characters, scanLimitMs }: { readonly characters: number; readonly scanLimitMs: number },
): Promise<DependencyGraph | null> {
  const before = await readPredecessors(client, table, id);
  const behind = await readDependents(client, table, id, scanLimitMs);
  const ids = [...new Set([id, ...before, ...behind.ids])];
  const { nodes, edges } = await readNodes(client, table, ids, characters);
  if (nodes[0]?.state === null) return null;
  return { nodes, edges, formerComplete: behind.complete };
}

/** Returns the ids of the predecessors, one level after the other. */
async function readPredecessors(client: Client, table: TaskTable, id: string): Promise<string[]> {
  const found = new Set<string>();
  let level = [id];
  for (let depth = 0; depth < maxLevels && level.length > 0 && found.size < maxInDirection; depth++) {
    const next = await readLevel(client, table, level);
    level = next.filter((each) => each !== id && !found.has(each)).slice(0, maxInDirection - found.size);
    for (const each of level) found.add(each);
  }
  return [...found];
}

async function readLevel(client: Client, { qualified }: TaskTable, ids: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `WITH dependent AS MATERIALIZED (
       SELECT t.id, t.after[1:$2] AS after, CASE WHEN t.state::text = 'GONE' THEN substr(t.error::text, 1, 100) END AS error
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
     SELECT id::text AS id FROM ranked WHERE place <= ${maxWidth} ORDER BY task, place`,
    [ids, Math.max(1, Math.trunc(maxExamined / ids.length))],
  );
  return [...new Set(rows.map((row) => row.id))];
}

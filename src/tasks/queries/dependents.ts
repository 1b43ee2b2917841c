import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { ScanWindow } from "./scanWindow.js";
import { isActiveSql, isHeldSql, isToLookUpSql, maxInDirection, maxLevels, maxWidth } from "./waitingTasks.js";

/**
 * Returns the ids of the tasks that wait for this one or have waited for it, directly or for one that does.
 *
 * Those that wait are found by indexes. No index covers those that have waited, so the rows after the task are scanned
 * for them, as far as the time allows. A dependent has a larger id than its predecessors.
 */
export async function readDependents(
  client: Client,
  table: TaskTable,
  id: string,
  scanLimitMs: number,
): Promise<{ readonly ids: string[]; readonly complete: boolean }> {
  const found = await readWaiting(client, table, id);
  const complete = await scanForFormer(client, table, id, found, scanLimitMs);
  return { ids: [...found], complete };
}

/** Returns the ids of the waiting tasks, one level after the other. */
async function readWaiting(client: Client, table: TaskTable, id: string): Promise<Set<string>> {
  const found = new Set<string>();
  let level = [id];
  for (let depth = 0; depth < maxLevels && level.length > 0 && found.size < maxInDirection; depth++) {
    const next = await readLevel(client, table, level);
    level = next.filter((each) => !found.has(each)).slice(0, maxInDirection - found.size);
    for (const each of level) found.add(each);
  }
  return found;
}

async function readLevel(
  client: Client,
  { qualified, qualifiedDependencies }: TaskTable,
  ids: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `WITH active AS MATERIALIZED (
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
     ) AS p WHERE place <= ${maxWidth} ORDER BY predecessor, task`,
    [ids],
  );
  return [...new Set(rows.map((row) => row.id))];
}

/**
 * Adds tasks that have waited to `found`.
 *
 * @returns whether all rows after the task were scanned
 */
async function scanForFormer(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  found: Set<string>,
  scanLimitMs: number,
): Promise<boolean> {
  const began = performance.now();
  const window = new ScanWindow();
  for (let after = id; ;) {
    if (found.size >= maxInDirection) return false;
    const size = window.rows;
    const from = after;
    const { rows } = await window.timed(() =>
      client.query<{ scanned: number; last: string; ids: string[] }>(
        `WITH seen AS MATERIALIZED (
           SELECT t.id, t.after FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT ${size}
         )
         SELECT count(*)::integer AS scanned, coalesce(max(id)::text, '') AS last, ARRAY(
           SELECT id::text FROM seen WHERE after && $2::bigint[] AND id <> ALL ($2::bigint[])
           ORDER BY seen.id LIMIT ${maxWidth}) AS ids
         FROM seen`,
        [from, [id, ...found]],
      ),
    );
    const [row = { scanned: 0, last: "", ids: [] }] = rows;
    for (const each of row.ids.slice(0, maxInDirection - found.size)) found.add(each);
    const isOver = performance.now() - began > scanLimitMs;
    // Those just found may have dependents in the same window.
    if (row.ids.length > 0 && !isOver) continue;
    if (row.scanned < size && row.ids.length === 0) return true;
    if (isOver) return false;
    after = row.last;
  }
}

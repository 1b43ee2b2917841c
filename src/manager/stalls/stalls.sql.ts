/** Statements with which the stall monitor looks at the rows and the sessions, apart from what the manager knows. */
import type { Client } from "../../shared/postgres/client.js";
import {
  gapMs,
  groupHeads,
  isNotIn,
  keyParameter,
  maxOthers,
  startBlockers,
  type StartBlocker,
} from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasId } from "../sql/fragments.sql.js";

export interface GroupHead {
  readonly hash: number;
  readonly id: string;
  /** The task's gap, in ms. 0 if it has none. Only the manager's memory tells whether it has passed. */
  readonly gap_ms: number;
  readonly blockers: readonly StartBlocker[];
}

/**
 * Reads the first due task of each of the next `limit` groups whose hashes are larger than `after`.
 *
 * @param request.running how many sessions run tasks of each group, by the group's hash
 * @param request.keys keys of running tasks. Tasks with these keys are skipped.
 */
export async function readGroupHeads(
  client: Client,
  table: TaskTable,
  request: {
    readonly after: number;
    readonly limit: number;
    readonly except: readonly string[];
    readonly keys: readonly string[];
    readonly running: ReadonlyMap<number, number>;
  },
): Promise<GroupHead[]> {
  const { after, limit, except, keys, running } = request;
  const { rows } = await client.query<GroupHead>({
    name: "group heads",
    text: `
WITH ${groupHeads(table, { columns: `hash, ${maxOthers} AS max, id`, after: "$1", except: "$3", keys: "$6" })}
SELECT t.hash, t.id::text AS id, ${gapMs("t.")} AS gap_ms, ${startBlockers(table, { running: "g.running", keyRuns: "NULL", quietMs: "NULL" })} AS blockers
FROM (SELECT id FROM head LIMIT $2) AS h
CROSS JOIN LATERAL (SELECT * FROM ${table.qualified} AS t WHERE ${hasId("h.id")}) AS t
LEFT JOIN unnest($4::integer[], $5::integer[]) AS g(hash, running) ON g.hash = t.hash ORDER BY t.hash`,
    values: [after, limit, except, [...running.keys()], [...running.values()], ...keyParameter(table, keys)],
  });
  return rows;
}

/** A task in `PLAN` whose planned time has come. */
export interface OverdueTask {
  readonly id: string;
  readonly group: string;
  readonly locked: boolean;
}

export async function readOverdueTasks(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<OverdueTask[]> {
  if (ids.length === 0) return [];
  const { rows } = await client.query<OverdueTask>({
    name: "overdue tasks",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT t.id::text AS id, t."group"::text AS "group", t.id <> ALL (ARRAY(SELECT id FROM free)) AS locked FROM ${table.qualified} AS t
WHERE t.id = ANY ($1::bigint[]) AND t.state::text = 'PLAN' AND t.ready IS NOT NULL AND t.plan <= now() AND t.owner IS NULL
ORDER BY t.id`,
    values: [ids],
  });
  return rows;
}

/** Reads tasks whose planned time has come but which are not marked as due, in the order of their planned times. */
export async function readUnmarkedTasks(
  client: Client,
  table: TaskTable,
  request: { readonly limit: number; readonly except: readonly string[] },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "unmarked tasks",
    text: `
SELECT id::text AS id FROM ${table.qualified}
WHERE NOT ready AND plan <= now() AND owner IS NULL AND ${isNotIn("id", "$2")} ORDER BY plan LIMIT $1`,
    values: [request.limit, request.except],
  });
  return rows.map(({ id }) => id);
}

export async function idleFor(client: Client, pids: readonly number[], ms: number): Promise<number> {
  const { rows } = await client.query<{ count: number }>({
    name: "idle for",
    text: `
SELECT count(*)::integer AS count FROM pg_stat_activity
WHERE pid = ANY ($1::integer[]) AND state = 'idle' AND state_change < clock_timestamp() - interval '1 ms' * $2::integer`,
    values: [pids, ms],
  });
  return rows[0]?.count ?? 0;
}

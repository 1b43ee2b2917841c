import type { Client } from "../../shared/postgres/client.js";
import {
  gapMs,
  groupHeads,
  keyParameter,
  maxOthers,
  startBlockers,
  type StartBlocker,
} from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasId } from "../sql/fragments.sql.js";

/** The first due task of a group. */
export interface GroupHead {
  readonly hash: number;
  readonly id: string;
  /** The task's gap, in ms. 0 if it has none. Only the manager's memory tells whether it has passed. */
  readonly gap_ms: number;
  /** Why the task must not start. */
  readonly blockers: readonly StartBlocker[];
}

/**
 * Reads the first due task of each of the next `limit` groups whose hashes are larger than `after`.
 *
 * @param except ids of tasks to skip
 * @param running how many sessions run tasks of each group, by the group's hash
 * @param keys keys of running tasks. Tasks with these keys are skipped.
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

import type { Client } from "../../shared/postgres/client.js";
import { ownerSql } from "../../shared/postgres/backendIdentity.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "../results/releaseTasks.sql.js";

/** A session that has a task and whose server process does nothing. */
export interface IdleOwner {
  readonly owner: string;
  /** Since when, null when the process is gone. */
  readonly since: string | null;
  /** How long that is, in ms; null when the process is gone. */
  readonly idleMs: number | null;
}

/** Those of the sessions that run these tasks whose server process is gone, or waits for us. */
export async function idleOwners(
  client: Client,
  table: TaskTable,
  running: readonly OwnedTask[],
): Promise<IdleOwner[]> {
  const { rows } = await client.query<IdleOwner>({
    name: "idle owners",
    // That of a remote task waits while the task runs elsewhere.
    text: `
SELECT r.owner, max(a.state_change)::text AS since,
  (extract(epoch FROM clock_timestamp() - max(a.state_change)) * 1000)::double precision AS "idleMs"
FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
LEFT JOIN pg_stat_activity AS a ON a.pid::text = split_part(r.owner, ' ', 1)
  AND (a.backend_start IS NULL OR ${ownerSql("a")} = r.owner)
WHERE (a.pid IS NULL OR a.state = 'idle')
  AND NOT EXISTS (SELECT FROM ${table.qualified} AS t WHERE t.id = r.id AND t.remote IS NOT NULL)
GROUP BY r.owner`,
    values: [running.map(({ id }) => id), running.map(({ owner }) => owner)],
  });
  return rows;
}

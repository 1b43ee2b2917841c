import type { Client } from "../../shared/postgres/client.js";
import { isOwnerSql } from "../../shared/postgres/backendIdentity.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "../model/tasks.js";

/** A session that has a task, although its backend is idle or gone, or waits until its client reads. */
export interface IdleOwner {
  readonly owner: string;
  /** When the backend became idle or began its statement; null if the backend is gone. */
  readonly since: string | null;
  /** How long the backend has been idle, in ms; null if it is gone or is sending. */
  readonly idleMs: number | null;
  /** Whether the backend is sending and waits until its client reads. */
  readonly isSending: boolean;
}

/** Returns those owners of these tasks whose backends are idle, gone or blocked in sending, without remote tasks. */
export async function idleOwners(
  client: Client,
  table: TaskTable,
  running: readonly OwnedTask[],
): Promise<IdleOwner[]> {
  const { rows } = await client.query<IdleOwner>({
    name: "idle owners",
    // Remote tasks are left out because their local backend is idle while they run on the other server.
    text: `
SELECT r.owner, max(a.state_change)::text AS since,
  (extract(epoch FROM clock_timestamp() - max(a.state_change) FILTER (WHERE a.state = 'idle')) * 1000)::double precision
    AS "idleMs",
  coalesce(bool_or(a.state <> 'idle'), false) AS "isSending"
FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
LEFT JOIN pg_stat_activity AS a ON a.pid::text = split_part(r.owner, ' ', 1)
  AND ${isOwnerSql("a", "r.owner")}
WHERE (a.pid IS NULL OR a.state = 'idle' OR a.wait_event = 'ClientWrite')
  AND NOT EXISTS (SELECT FROM ${table.qualified} AS t WHERE t.id = r.id AND t.remote IS NOT NULL)
GROUP BY r.owner`,
    values: [running.map(({ id }) => id), running.map(({ owner }) => owner)],
  });
  return rows;
}

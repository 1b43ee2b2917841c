import type { Client } from "../../shared/postgres/client.js";
import { reservedConnections } from "../../shared/postgres/serverLimits.js";

/**
 * Returns how many more connections pg-task may open, at least 0. From ordinary roles, the server hides the
 * `backend_type` of other roles' processes, but not whether a process has a database and a user. A process whose type
 * is hidden is therefore counted if it has both.
 */
export async function availableConnections(client: Client): Promise<number> {
  const { rows } = await client.query<{ room: number }>({
    name: "available connections",
    text: `
SELECT greatest(0, current_setting('max_connections')::integer - ${reservedConnections} - count(*)::integer) AS room
FROM pg_stat_activity
WHERE backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL`,
  });
  return rows[0]?.room ?? 0;
}

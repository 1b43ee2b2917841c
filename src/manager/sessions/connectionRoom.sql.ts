import type { Client } from "../../shared/postgres/client.js";

/** How many connections of the server are left to others in any case. */
const leftToOthers = 10;

/**
 * How many more connections the server has room for, at least 0. The server hides from ordinary roles what
 * kind of process others' are, but not whether they have a database and a user.
 */
export async function connectionRoom(client: Client): Promise<number> {
  const { rows } = await client.query<{ room: number }>({
    name: "connection room",
    text: `
SELECT greatest(0, current_setting('max_connections')::integer - ${leftToOthers} - count(*)::integer) AS room
FROM pg_stat_activity
WHERE backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL`,
  });
  return rows[0]?.room ?? 0;
}

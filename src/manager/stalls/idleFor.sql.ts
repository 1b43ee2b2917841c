import type { Client } from "../../shared/postgres/client.js";

/** Returns how many of these backends have been idle for at least `ms`. */
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

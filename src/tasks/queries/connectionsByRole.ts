import type { Client } from "../../shared/postgres/client.js";

/** How many connections of pg-task's the database has, by what they are. */
export async function serverConnections(
  client: Client,
): Promise<readonly { readonly role: string; readonly connections: number }[]> {
  const { rows } = await client.query<{ role: string; connections: number }>(
    `SELECT CASE WHEN application_name = 'pg_task web' THEN 'web'
         WHEN application_name = 'pg_conf' THEN 'supervisor'
         WHEN application_name LIKE 'pg\\_work %' THEN 'manager'
         WHEN application_name LIKE 'pg\\_task %' THEN 'session' END AS role, count(*)::int AS connections
     FROM pg_stat_activity WHERE datname = current_database()
     GROUP BY 1 HAVING bool_and(application_name ~ '^pg_(conf$|work |task )')`,
  );
  return rows.filter(({ role }) => role !== null);
}

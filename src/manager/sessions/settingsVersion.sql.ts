import type { Client } from "../../shared/postgres/client.js";

/** SQL of a string that changes with each change of settings of the manager's role or database. */
export const settingsVersionQuery = `
SELECT coalesce(string_agg(concat_ws(' ', s.setdatabase, s.setrole, s.xmin), ',' ORDER BY s.setdatabase, s.setrole), '') AS version
FROM pg_db_role_setting AS s
WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
  AND s.setrole IN (0, to_regrole(quote_ident(session_user))::oid)`;

export async function readSettingsVersion(client: Client): Promise<string> {
  const { rows } = await client.query<{ version: string }>({ name: "settings version", text: settingsVersionQuery });
  return rows[0]?.version ?? "";
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * SQL of a string that changes with each change of settings of the manager's role or database. With users, also with
 * each change of the listed roles, of their logins and of what these are.
 */
export const settingsVersionQuery = `
SELECT coalesce(string_agg(concat_ws(' ', s.setdatabase, s.setrole, s.xmin), ',' ORDER BY s.setdatabase, s.setrole), '') AS version
FROM pg_db_role_setting AS s
WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
  AND s.setrole IN (0, to_regrole(quote_ident(session_user))::oid)`;

const rolesVersionQuery = ({ qualifiedRoles }: TaskTable): string => `
SELECT concat((${settingsVersionQuery}), ' ', (SELECT string_agg(concat_ws(' ', f.role, f.login, f.max, r.oid, l.oid, r.rolsuper, l.rolsuper, l.rolcanlogin,
  (SELECT string_agg(concat_ws(' ', s.setdatabase, s.xmin), ',' ORDER BY s.setdatabase) FROM pg_db_role_setting AS s WHERE s.setrole = r.oid)), ',' ORDER BY f.role)
  FROM ${qualifiedRoles} AS f LEFT JOIN pg_roles AS r ON r.rolname = f.role LEFT JOIN pg_roles AS l ON l.rolname = f.login)) AS version`;

export async function readSettingsVersion(client: Client, table: TaskTable): Promise<string> {
  const hasUsers = table.usersOwner !== null;
  const { rows } = await client.query<{ version: string }>({
    name: hasUsers ? "settings version users" : "settings version",
    text: hasUsers ? rolesVersionQuery(table) : settingsVersionQuery,
  });
  return rows[0]?.version ?? "";
}

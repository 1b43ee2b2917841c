import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { queryOne } from "../queryOne.js";

/** Says that row-level security hides rows from the current role, and how to show them. Null if it hides none. */
export async function readHiddenRows(client: Queryable, { qualified }: TaskTable): Promise<string | null> {
  const { active, user } = await queryOne<{ active: boolean; user: string }>(
    client,
    `SELECT pg_catalog.row_security_active($1) AS active, pg_catalog.quote_ident(current_user) AS "user"`,
    [qualified],
  );
  return active
    ? `hides rows from ${user}; to show it all: CREATE POLICY look ON ${qualified} FOR SELECT TO ${user} USING (true)`
    : null;
}

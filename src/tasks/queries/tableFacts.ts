import { mayRead, queryOne } from "../queryOne.js";
import type { OpenTurn } from "../../shared/openTurn.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";

interface ChangePrivileges {
  readonly user: string;
  /** Whether the server is a standby, or takes no changes for another reason. */
  readonly readOnly: boolean;
  readonly update: boolean;
  readonly delete: boolean;
  readonly pause: boolean;
}

export async function readChangePrivileges(
  client: Queryable,
  { qualified, pauses }: TaskTable,
): Promise<ChangePrivileges> {
  return await queryOne<ChangePrivileges>(
    client,
    `SELECT quote_ident(current_user) AS user,
       pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS "readOnly",
       has_any_column_privilege($1::text, 'UPDATE') AS update, has_table_privilege($1::text, 'DELETE') AS delete,
       coalesce(has_table_privilege(to_regclass($2::text), 'INSERT') AND has_table_privilege(to_regclass($2::text), 'SELECT')
         AND has_table_privilege(to_regclass($2::text), 'DELETE'), true) AS pause`,
    [qualified, pauses],
  );
}

/** Those that may reject or suppress an update of a task's row. */
export async function readUserTriggers(client: Queryable, table: TaskTable): Promise<string[]> {
  const { qualified, readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill } = table;
  const options = [table.optionsInsertTrigger, table.optionsUpdateTrigger];
  const users = [table.authorInsertTrigger, table.authorUpdateTrigger];
  const own = [readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill, ...options, ...users];
  const { rows } = await client.query<{ name: string }>(
    `SELECT DISTINCT t.tgname::text AS name FROM pg_catalog.pg_trigger AS t
     WHERE t.tgrelid IN (SELECT $1::regclass UNION SELECT p.relid FROM pg_catalog.pg_partition_tree($1::regclass) AS p)
       AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgname <> ALL ($2::text[])
       -- FOR EACH ROW, BEFORE UPDATE.
       AND t.tgtype & 19 = 19
     ORDER BY 1`,
    [qualified, own],
  );
  return rows.map(({ name }) => name);
}

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

/** Empty if this role may not know, or if the table is of an earlier version. */
export async function readOpenTurns(client: Queryable, { turns }: TaskTable): Promise<OpenTurn[]> {
  if ((await mayRead(client, turns)) !== true) return [];
  const { rows } = await client.query<OpenTurn>(
    `SELECT turn::pg_catalog.text AS task, "group", begun FROM ${turns} ORDER BY begun DESC, turn`,
  );
  return rows;
}

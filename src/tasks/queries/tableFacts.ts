import { queryOne } from "../queryOne.js";
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

import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";

/** What the current user may do with the tasks of a table, and whether the server takes changes at all. */
export interface ChangePrivileges {
  readonly user: string;
  /** Whether the server is a standby, or takes no changes for another reason. */
  readonly readOnly: boolean;
  /** Whether it may change at least one column. */
  readonly update: boolean;
  readonly delete: boolean;
  /** Whether it may pause groups and end pauses. */
  readonly pause: boolean;
}

/** Reads whether the current user can change tasks. */
export async function readChangePrivileges(
  client: Queryable,
  { qualified, pauses }: TaskTable,
): Promise<ChangePrivileges> {
  const { rows } = await client.query<ChangePrivileges>(
    `SELECT quote_ident(current_user) AS user,
       pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS "readOnly",
       has_any_column_privilege($1::text, 'UPDATE') AS update, has_table_privilege($1::text, 'DELETE') AS delete,
       coalesce(has_table_privilege(to_regclass($2::text), 'INSERT') AND has_table_privilege(to_regclass($2::text), 'SELECT')
         AND has_table_privilege(to_regclass($2::text), 'DELETE'), true) AS pause`,
    [qualified, pauses],
  );
  const [privileges] = rows;
  if (privileges === undefined) throw new Error("expected one row");
  return privileges;
}

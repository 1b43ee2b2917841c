import type { TaskTable } from "../manager/schema/taskTable.js";
import type { Queryable } from "../shared/postgres/client.js";

const known = new WeakMap<TaskTable, boolean>();

/** Whether the tasks of a table run as their users. Then each role has keys of its own. */
export async function hasUsers(client: Queryable, table: TaskTable): Promise<boolean> {
  const found = known.get(table) ?? (await readHasUsers(client, table));
  known.set(table, found);
  return found;
}

async function readHasUsers(client: Queryable, { schema, roleTable }: TaskTable): Promise<boolean> {
  const { rows } = await client.query(
    `SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE n.nspname OPERATOR(pg_catalog.=) $1 AND c.relname OPERATOR(pg_catalog.=) $2`,
    [schema, roleTable],
  );
  return rows.length > 0;
}

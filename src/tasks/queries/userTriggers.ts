import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** The user's own triggers that may refuse a change of a task's row, or keep the row as it is, by their names. */
export async function readUserTriggers(client: Client, table: TaskTable): Promise<string[]> {
  const { qualified, readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill } =
    table;
  const own = [readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill];
  const { rows } = await client.query<{ name: string }>(
    `SELECT DISTINCT t.tgname::text AS name FROM pg_catalog.pg_trigger AS t
     WHERE t.tgrelid IN (SELECT $1::regclass UNION SELECT p.relid FROM pg_catalog.pg_partition_tree($1::regclass) AS p)
       AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgname <> ALL ($2::text[])
       -- Of rows, before an UPDATE.
       AND t.tgtype & 19 = 19
     ORDER BY 1`,
    [qualified, own],
  );
  return rows.map(({ name }) => name);
}

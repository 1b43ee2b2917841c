import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";

/** Returns the names of the user's triggers that may reject or suppress an update of a task's row. */
export async function readUserTriggers(client: Queryable, table: TaskTable): Promise<string[]> {
  const { qualified, readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill } = table;
  const options = [table.optionsInsertTrigger, table.optionsUpdateTrigger];
  const own = [readyInsertTrigger, readyUpdateTrigger, wakeUp, ownDeleteTrigger, fill, ...options];
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

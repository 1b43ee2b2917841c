import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";

/** A text that is another one after rows of the table, its partitions included, were written. */
export async function changeCount(client: Client, { qualified }: TaskTable): Promise<string> {
  const { rows } = await client.query<{ changes: string | null }>(
    `SELECT sum(pg_stat_get_tuples_inserted(part) + pg_stat_get_tuples_updated(part)
       + pg_stat_get_tuples_deleted(part))::text AS changes
     FROM (SELECT $1::regclass::oid AS part UNION
       SELECT relid::oid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return rows[0]?.changes ?? "";
}

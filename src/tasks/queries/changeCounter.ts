import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Returns a string that changes whenever rows of the table or of its partitions are written. */
export async function readChangeCounter(client: Client, { qualified }: TaskTable): Promise<string> {
  const { rows } = await client.query<{ changes: string | null }>(
    `SELECT sum(pg_stat_get_tuples_inserted(part) + pg_stat_get_tuples_updated(part)
       + pg_stat_get_tuples_deleted(part))::text AS changes
     FROM (SELECT $1::regclass::oid AS part UNION
       SELECT relid::oid FROM pg_partition_tree($1::regclass)) AS parts`,
    [qualified],
  );
  return rows[0]?.changes ?? "";
}

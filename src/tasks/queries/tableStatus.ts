import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Returns whether the table exists, and whether it was created or adopted by pg-task. */
export async function readTableStatus(
  client: Client,
  { qualified, pauses }: TaskTable,
): Promise<"yes" | "no" | "not adopted"> {
  const { rows } = await client.query<{ there: boolean; adopted: boolean }>(
    `SELECT to_regclass($1) IS NOT NULL AS there, to_regclass($2) IS NOT NULL AND EXISTS (
       SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'ready' AND NOT attisdropped) AS adopted`,
    [qualified, pauses],
  );
  const { there = false, adopted = false } = rows[0] ?? {};
  if (!there) return "no";
  return adopted ? "yes" : "not adopted";
}

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

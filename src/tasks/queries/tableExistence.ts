import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Returns whether the table exists, and whether it was created or adopted by pg-task. */
export async function readTableExistence(
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

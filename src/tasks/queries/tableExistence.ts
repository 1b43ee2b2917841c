import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";

/**
 * Returns "no" if the table does not exist, "yes" if pg-task has created or adopted it, and "not adopted" otherwise.
 */
export async function readTableExistence(
  client: Queryable,
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

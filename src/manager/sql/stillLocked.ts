import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../table.js";

/** Those of `ids` that are due and whose row somebody has locked. */
export async function stillLocked(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "still locked",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id FROM ${table.qualified}
WHERE id = ANY ($1::bigint[]) AND ready AND id <> ALL (ARRAY(SELECT id FROM free))`,
    values: [ids],
  });
  return rows.map((row) => String(row.id));
}

import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../table.js";

/** Most rows of one statement. */
const batch = 1000;

/**
 * Marks tasks whose plan has come as due.
 *
 * @returns whether there may be more.
 */
export async function promote(client: Client, table: TaskTable): Promise<boolean> {
  const { rowCount } = await client.query({
    name: "promote",
    text: `
UPDATE ${table.qualified} SET ready = true
WHERE id = ANY (ARRAY(
  SELECT id FROM ${table.qualified} WHERE NOT ready AND plan <= now() AND owner IS NULL
  ORDER BY plan LIMIT ${batch} FOR NO KEY UPDATE SKIP LOCKED))`,
  });
  return rowCount === batch;
}

import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../table.js";
import type { DueTask } from "./claim.js";
import { beside } from "./head.js";

/** Most rows of one statement. */
const batch = 1000;

/**
 * Marks tasks whose plan has come as due.
 *
 * @returns them, and whether there may be more.
 */
export async function promote(
  client: Client,
  table: TaskTable,
): Promise<{ readonly due: readonly DueTask[]; readonly more: boolean }> {
  const { rows } = await client.query<Omit<DueTask, "id"> & { id: string | number }>({
    name: "promote",
    text: `
UPDATE ${table.qualified} SET ready = true
WHERE id = ANY (ARRAY(
  SELECT id FROM ${table.qualified} WHERE NOT ready AND plan <= now() AND owner IS NULL
  ORDER BY plan LIMIT ${batch} FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, hash, ${beside} AS max`,
  });
  return {
    due: rows.map(({ id, hash, max }) => ({ id: String(id), hash, max })),
    more: rows.length === batch,
  };
}

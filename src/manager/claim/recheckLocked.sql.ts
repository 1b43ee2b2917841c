import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { DueTask } from "../model.js";
import { isReady, maxOthers } from "../sql/fragments.sql.js";

/** Reads which of these tasks are still locked, and which are due and no longer locked. */
export async function recheckLocked(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<{ readonly locked: string[]; readonly free: readonly DueTask[] }> {
  const { rows } = await client.query<Omit<DueTask, "id"> & { id: string | number; locked: boolean }>({
    name: "recheck locked",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id, hash, ${maxOthers} AS max, id <> ALL (ARRAY(SELECT id FROM free)) AS locked FROM ${table.qualified}
WHERE id = ANY ($1::bigint[]) AND ${isReady}`,
    values: [ids],
  });
  return {
    locked: rows.flatMap(({ id, locked }) => (locked ? String(id) : [])),
    free: rows.flatMap(({ id, hash, max, locked }) => (locked ? [] : { id: String(id), hash, max })),
  };
}

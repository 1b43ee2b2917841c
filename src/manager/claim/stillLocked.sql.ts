import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isReady } from "../sql/byId.js";
import type { DueTask } from "./claimFull.sql.js";
import { beside } from "../sql/head.js";

/** Of these tasks those that are due, by whether somebody still has their row locked. */
export async function stillLocked(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<{ readonly locked: string[]; readonly free: readonly DueTask[] }> {
  const { rows } = await client.query<
    Omit<DueTask, "id"> & { id: string | number; locked: boolean }
  >({
    name: "still locked",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id, hash, ${beside} AS max, id <> ALL (ARRAY(SELECT id FROM free)) AS locked FROM ${table.qualified}
WHERE id = ANY ($1::bigint[]) AND ${isReady}`,
    values: [ids],
  });
  return {
    locked: rows.flatMap(({ id, locked }) => (locked ? String(id) : [])),
    free: rows.flatMap(({ id, hash, max, locked }) =>
      locked ? [] : { id: String(id), hash, max },
    ),
  };
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { DueTask } from "../model/tasks.js";
import { version } from "../sql/claimedTask.sql.js";
import { isReady } from "../sql/fragments.sql.js";
import { maxOthers } from "../schema/startRule.sql.js";

export interface RecheckedTask extends DueTask {
  readonly locked: boolean;
  readonly version: string;
}

export async function recheckLocked(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<readonly RecheckedTask[]> {
  const { rows } = await client.query<RecheckedTask>({
    name: "recheck locked",
    text: `
WITH free AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id::text AS id, hash, ${maxOthers} AS max, id <> ALL (ARRAY(SELECT id FROM free)) AS locked, ${version} AS version
FROM ${table.qualified} AS t WHERE id = ANY ($1::bigint[]) AND ${isReady}`,
    values: [ids],
  });
  return rows;
}

import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { byId } from "../sql/byId.js";
import { setByTask } from "../results/setByTask.sql.js";
import type { OwnedTask } from "../results/releaseTasks.sql.js";

/** Those of the running tasks that somebody has deleted or set to another state, unless it was the task itself. */
export async function unwantedRuns(
  client: Client,
  table: TaskTable,
  running: readonly OwnedTask[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "unwanted",
    text: `
SELECT r.id FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
WHERE NOT EXISTS (
  SELECT FROM ${table.qualified} AS t WHERE ${byId("r.id")} AND t.owner = r.owner AND (t.state::text IN ('TAKE', 'WORK') OR ${setByTask}))`,
    values: [running.map((task) => task.id), running.map((task) => task.owner)],
  });
  return rows.map((row) => row.id);
}

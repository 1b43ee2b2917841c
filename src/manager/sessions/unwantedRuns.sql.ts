import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "../model/tasks.js";
import { hasId, isSetByTask } from "../sql/fragments.sql.js";

/** Returns the running tasks that others have deleted or set to another state. */
export async function unwantedRuns(client: Client, table: TaskTable, running: readonly OwnedTask[]): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "unwanted runs",
    text: `
SELECT r.id FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
WHERE NOT EXISTS (
  SELECT FROM ${table.qualified} AS t WHERE ${hasId("r.id")} AND t.owner = r.owner AND (t.state::text IN ('TAKE', 'WORK') OR ${isSetByTask}))`,
    values: [running.map((task) => task.id), running.map((task) => task.owner)],
  });
  return rows.map((row) => row.id);
}

import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../table.js";
import { byId } from "./byId.js";
import { setByItself } from "./setByItself.js";
import type { OwnedTask } from "./giveBack.js";

/** Those of the running tasks that somebody has deleted or set to another state, unless it was the task itself. */
export async function unwanted(
  client: Client,
  table: TaskTable,
  running: readonly OwnedTask[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "unwanted",
    text: `
SELECT r.id FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
WHERE NOT EXISTS (
  SELECT FROM ${table.qualified} AS t WHERE ${byId("r.id")} AND t.owner = r.owner AND (t.state::text IN ('TAKE', 'WORK') OR ${setByItself}))`,
    values: [running.map((task) => task.id), running.map((task) => task.owner)],
  });
  return rows.map((row) => row.id);
}

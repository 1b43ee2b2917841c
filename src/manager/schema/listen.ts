import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/** Returns the channels. */
export async function listenToTable(client: Client, table: TaskTable): Promise<readonly string[]> {
  const { rows } = await client.query<{ channel: string }>(
    "SELECT concat('pg_task_', to_regclass(name)::oid) AS channel FROM unnest($1::text[]) AS n(name) WHERE to_regclass(name) IS NOT NULL",
    [[table.qualified, table.pauses, table.qualifiedHome]],
  );
  await client.query(rows.map(({ channel }) => `LISTEN ${identifier(channel)}`).join("; "));
  return rows.map(({ channel }) => channel);
}

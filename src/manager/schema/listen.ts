import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

export async function listenToTable(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ channel: string }>(
    "SELECT concat('pg_task_', to_regclass(name)::oid) AS channel FROM unnest($1::text[]) AS n(name) WHERE to_regclass(name) IS NOT NULL",
    [[table.qualified, table.pauses, table.qualifiedHome]],
  );
  for (const { channel } of rows) await client.query(`LISTEN ${identifier(channel)}`);
}

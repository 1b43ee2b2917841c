import type { Client } from "../../shared/database.js";
import { identifier } from "../../shared/sqlText.js";
import type { TaskTable } from "../../manager/table.js";

/** Hears the wake-ups of the table and of its pauses as notifications. */
export async function listen(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ channel: string }>(
    `SELECT concat('pg_task_', to_regclass(name)::oid) AS channel
     FROM unnest($1::text[]) AS n(name) WHERE to_regclass(name) IS NOT NULL`,
    [[table.qualified, table.pauses]],
  );
  for (const { channel } of rows) await client.query(`LISTEN ${identifier(channel)}`);
}

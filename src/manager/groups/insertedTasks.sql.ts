import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { beside, groupPaused, type HeadRow } from "../sql/head.js";
import { tooLate } from "../sql/tooLate.js";

/** A row that was inserted, whether it is due or not. */
export interface InsertedTask extends HeadRow {
  readonly due: boolean;
}

/** At most `limit` rows after this id, in its order. */
export async function insertedTasks(
  client: Client,
  table: TaskTable,
  after: bigint,
  limit: number,
): Promise<InsertedTask[]> {
  const { rows } = await client.query<InsertedTask>({
    name: "inserted",
    text: `
SELECT t.id, t.hash, ${beside} AS max, coalesce(t.ready AND t.plan <= now(), false) AS due,
  ${tooLate} AS gone, ${groupPaused(table, "t")} AS paused
FROM ${table.qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT $2`,
    values: [String(after), limit],
  });
  return rows;
}

/** The largest id there is, 0 when there is none. */
export async function lastId(client: Client, table: TaskTable): Promise<bigint> {
  const { rows } = await client.query<{ id: string }>({
    name: "last id",
    text: `SELECT coalesce((SELECT id FROM ${table.qualified} ORDER BY id DESC LIMIT 1), 0)::text AS id`,
  });
  return BigInt(rows[0]?.id ?? 0);
}

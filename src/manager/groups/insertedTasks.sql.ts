import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { type HeadRow } from "../sql/fragments.sql.js";
import { gapMs, isGroupPaused, isLate, maxOthers } from "../schema/startRule.sql.js";

/** An inserted row, whether or not its task is due. */
export interface InsertedTask extends HeadRow {
  readonly due: boolean;
}

/** Reads at most `limit` rows with ids larger than `after`, in the order of their ids. */
export async function insertedTasks(
  client: Client,
  table: TaskTable,
  after: bigint,
  limit: number,
): Promise<InsertedTask[]> {
  const { rows } = await client.query<InsertedTask>({
    name: "inserted tasks",
    text: `
SELECT t.id, t.hash, ${maxOthers} AS max, coalesce(t.ready AND t.plan <= now(), false) AS due,
  ${gapMs("t.")} AS gap_ms, ${isLate()} AS late, ${isGroupPaused(table, "t")} AS paused
FROM ${table.qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT $2`,
    values: [String(after), limit],
  });
  return rows;
}

/** Reads the largest id, or 0 if the table is empty. */
export async function lastId(client: Client, table: TaskTable): Promise<bigint> {
  const { rows } = await client.query<{ id: string }>({
    name: "last id",
    text: `SELECT coalesce((SELECT id FROM ${table.qualified} ORDER BY id DESC LIMIT 1), 0)::text AS id`,
  });
  return BigInt(rows[0]?.id ?? 0);
}

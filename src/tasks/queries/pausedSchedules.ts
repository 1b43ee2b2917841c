import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { isPlannedSql } from "../sqlFragments.js";

/** The schedules of a table that are paused themselves, regardless of pauses of their groups and of the table. */
export interface PausedSchedules {
  readonly count: number;
  /** The oldest of them, at most five. */
  readonly first: readonly { readonly id: string; readonly key: string | null }[];
}

const maxListed = 5;

/**
 * Reads which schedules are paused. Such a schedule is planned for infinity and does not wait for other tasks.
 */
export async function readPausedSchedules(client: Client, table: TaskTable): Promise<PausedSchedules> {
  const { rows } = await client.query<{ id: string; key: string | null; count: number }>(
    `SELECT t.id::text AS id, t.key, (count(*) OVER ())::float8 AS count
     FROM ${table.qualified} AS t
     WHERE ${isPlannedSql} AND t.plan = 'infinity' AND ${hasSchedule("t")}
       AND t.state::text = 'PLAN' AND t.owner IS NULL AND (t.wait >= 0) IS NOT TRUE
     ORDER BY t.id LIMIT ${maxListed}`,
  );
  return { count: rows[0]?.count ?? 0, first: rows.map(({ id, key }) => ({ id, key })) };
}

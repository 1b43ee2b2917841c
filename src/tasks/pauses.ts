import type { TaskTable } from "../manager/schema/taskTable.js";
import type { Client, Queryable } from "../shared/postgres/client.js";
import { isoTimeSql, isPlannedSql } from "./sqlFragments.js";
import { hasFailedTooOften, hasSchedule } from "../manager/schema/schedulesView.sql.js";
import type { ScheduleName } from "./queries/schedules.js";

export interface Pause {
  readonly group: string | null;
  readonly since: string;
  readonly reason: string | null;
}

/** A pause of the whole table comes first, followed by the pauses of groups in the order of their names. */
export async function readPauses(client: Queryable, { pauses }: TaskTable): Promise<Pause[]> {
  const { rows } = await client.query<Pause>(
    `SELECT "group", ${isoTimeSql("since")} AS since, reason FROM ${pauses} ORDER BY "group" NULLS FIRST, since`,
  );
  return rows;
}

/** @param group null for the whole table */
export async function pauseTasks(
  client: Client,
  { pauses }: TaskTable,
  group: string | null,
  reason: string | null,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `INSERT INTO ${pauses} ("group", reason) SELECT $1::text, $2::text
     WHERE NOT EXISTS (SELECT FROM ${pauses} WHERE "group" IS NOT DISTINCT FROM $1::text)`,
    [group, reason],
  );
  return rowCount === 1;
}

export async function resumeTasks(client: Client, { pauses }: TaskTable, group: string | null): Promise<boolean> {
  const { rowCount } = await client.query(`DELETE FROM ${pauses} WHERE "group" IS NOT DISTINCT FROM $1::text`, [group]);
  return rowCount !== 0;
}

interface PausedSchedule extends ScheduleName {
  /** How many runs in a row have failed, if it is paused because of that. */
  readonly suspendedAfter: number | null;
}

/** The schedules of a table that are paused themselves, regardless of pauses of their groups and of the table. */
export interface PausedSchedules {
  readonly count: number;
  /** The oldest of them, at most five. */
  readonly first: readonly PausedSchedule[];
}

const maxListed = 5;

export async function readPausedSchedules(client: Client, table: TaskTable): Promise<PausedSchedules> {
  const { rows } = await client.query<PausedSchedule & { readonly count: number }>(
    `SELECT t.id::text AS id, t.key, t.role::text AS role,
       CASE WHEN ${hasFailedTooOften("t")} THEN t.failures::float8 END AS "suspendedAfter", (count(*) OVER ())::float8 AS count
     FROM ${table.qualified} AS t
     WHERE ${isPlannedSql} AND t.plan = 'infinity' AND ${hasSchedule("t")}
       AND t.state::text = 'PLAN' AND t.owner IS NULL AND (t.wait >= 0) IS NOT TRUE
     ORDER BY t.id LIMIT ${maxListed}`,
  );
  return {
    count: rows[0]?.count ?? 0,
    first: rows.map(({ id, key, role, suspendedAfter }) => ({ id, key, role, suspendedAfter })),
  };
}

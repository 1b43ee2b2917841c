import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { isoTimeSql } from "../sqlFragments.js";

/** A pause of a group or of the whole table. */
export interface Pause {
  /** Name of the group, or null if the whole table is paused. */
  readonly group: string | null;
  readonly since: string;
  readonly reason: string | null;
}

/**
 * Returns all pauses. A pause of the whole table comes first, followed by the pauses of groups in the order of their
 * names.
 */
export async function readPauses(client: Queryable, { pauses }: TaskTable): Promise<Pause[]> {
  const { rows } = await client.query<Pause>(
    `SELECT "group", ${isoTimeSql("since")} AS since, reason FROM ${pauses} ORDER BY "group" NULLS FIRST, since`,
  );
  return rows;
}

/**
 * Pauses a group, or the whole table if `group` is null.
 *
 * @returns false if the group or the table was already paused
 */
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

/**
 * Ends the pause of a group, or of the whole table if `group` is null. Other pauses stay in effect.
 *
 * @returns false if the group or the table was not paused
 */
export async function resumeTasks(client: Client, { pauses }: TaskTable, group: string | null): Promise<boolean> {
  const { rowCount } = await client.query(`DELETE FROM ${pauses} WHERE "group" IS NOT DISTINCT FROM $1::text`, [group]);
  return rowCount !== 0;
}

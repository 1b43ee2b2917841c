import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { isoTime } from "../time.js";

/** Whose tasks do not start, since when and why. */
export interface Pause {
  /** Null is the whole table. */
  readonly group: string | null;
  readonly since: string;
  readonly reason: string | null;
}

/** The table's own first, then by the group's name. */
export async function readPauses(client: Client, { pauses }: TaskTable): Promise<Pause[]> {
  const { rows } = await client.query<Pause>(
    `SELECT "group", ${isoTime("since")} AS since, reason FROM ${pauses} ORDER BY "group" NULLS FIRST, since`,
  );
  return rows;
}

/**
 * Pauses a group, or with null the whole table.
 *
 * @returns false when it was paused already.
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
 * Lets a group, or with null the whole table, go on; pauses of the other kind stay.
 *
 * @returns false when it was not paused.
 */
export async function resumeTasks(
  client: Client,
  { pauses }: TaskTable,
  group: string | null,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `DELETE FROM ${pauses} WHERE "group" IS NOT DISTINCT FROM $1::text`,
    [group],
  );
  return rowCount !== 0;
}

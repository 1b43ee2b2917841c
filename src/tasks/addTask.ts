import type { TaskTable } from "../manager/table.js";
import type { Client } from "../shared/database.js";
import { identifier } from "../shared/sqlText.js";

/**
 * Inserts a task; what is not given takes its column's default.
 *
 * @param columns texts by column, each as PostgreSQL reads the column's type
 * @param wait how long from now its plan is, as an interval
 * @returns its id.
 */
export async function addTask(
  client: Client,
  { qualified }: TaskTable,
  columns: ReadonlyMap<string, string>,
  wait?: string,
): Promise<string> {
  const names = [...columns.keys()].map(identifier);
  const values: string[] = [...columns.values()];
  const places = values.map((_, index) => `$${index + 1}`);
  if (wait !== undefined) {
    names.push("plan");
    places.push(`statement_timestamp() + $${values.push(wait)}::interval`);
  }
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO ${qualified} (${names.join(", ")}) VALUES (${places.join(", ")}) RETURNING id::text AS id`,
    values,
  );
  return rows[0]?.id ?? "";
}

/** What came of a task so far; null when its row is gone. */
export async function taskOutcome(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<{ state: string; held: boolean; output: string | null; error: string | null } | null> {
  const { rows } = await client.query<{
    state: string;
    held: boolean;
    output: string | null;
    error: string | null;
  }>(
    `SELECT t.state::text AS state, t.owner IS NOT NULL AS held,
       CASE WHEN t.owner IS NULL THEN t.output::text END AS output,
       CASE WHEN t.owner IS NULL THEN t.error::text END AS error
     FROM ${qualified} AS t WHERE t.id = $1::bigint`,
    [id],
  );
  return rows[0] ?? null;
}

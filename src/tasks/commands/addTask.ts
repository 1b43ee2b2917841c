import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";

/**
 * Inserts a task. Columns that are omitted take their defaults.
 *
 * @param columns values by column name, in PostgreSQL's syntax for the column's type
 * @param wait interval from now to the planned time
 * @returns the task's id
 */
export async function addTask(
  client: Client,
  { qualified }: TaskTable,
  columns: ReadonlyMap<string, string>,
  wait?: string,
): Promise<string> {
  const names = [...columns.keys()].map(identifier);
  const values: string[] = [...columns.values()];
  const expressions = values.map((_, index) => `$${index + 1}`);
  if (wait !== undefined) {
    names.push("plan");
    expressions.push(`statement_timestamp() + $${values.push(wait)}::interval`);
  }
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO ${qualified} (${names.join(", ")}) VALUES (${expressions.join(", ")}) RETURNING id::text AS id`,
    values,
  );
  return rows[0]?.id ?? "";
}

/** Columns that `readTaskOutcome` reads. */
const outcomeColumns = ["id", "state", "owner", "output", "error"];

/**
 * Returns GRANT statements for the privileges that the current user lacks to add a task and, if `wait` is set, to wait
 * for its end. The result is empty if no missing privilege was found.
 *
 * @param columns columns that are given a value
 */
export async function readMissingGrants(
  client: Client,
  { qualified }: TaskTable,
  columns: readonly string[],
  wait: boolean,
): Promise<string[]> {
  const { rows } = await client.query<{
    insert: string[];
    select: string[];
    sequence: string | null;
    grantee: string;
  }>(
    `WITH lacking AS (
       SELECT a.attname AS name, w.what FROM (
         SELECT unnest($2::text[]), 'INSERT' UNION ALL SELECT unnest($3::text[]), 'SELECT') AS w(name, what)
       JOIN pg_catalog.pg_attribute AS a ON a.attrelid = $1::text::regclass AND a.attname = w.name
       WHERE NOT has_column_privilege($1::text::regclass, a.attnum, w.what))
     SELECT ARRAY(SELECT quote_ident(name) FROM lacking WHERE what = 'INSERT') AS insert,
       ARRAY(SELECT quote_ident(name) FROM lacking WHERE what = 'SELECT') AS select,
       (SELECT s FROM pg_get_serial_sequence($1::text, 'id') AS s WHERE NOT has_sequence_privilege(s, 'USAGE')) AS sequence,
       quote_ident(current_user) AS grantee`,
    [qualified, columns, wait ? outcomeColumns : ["id"]],
  );
  const { insert = [], select = [], sequence = null, grantee = "" } = rows[0] ?? {};
  const privileges = [
    ...(insert.length === 0 ? [] : [`INSERT (${insert.join(", ")})`]),
    ...(select.length === 0 ? [] : [`SELECT (${select.join(", ")})`]),
  ];
  return [
    ...(privileges.length === 0 ? [] : [`GRANT ${privileges.join(", ")} ON ${qualified} TO ${grantee}`]),
    ...(sequence === null ? [] : [`GRANT USAGE ON SEQUENCE ${sequence} TO ${grantee}`]),
  ];
}

/** Returns a task's state and result, or null if the task's row is gone. */
export async function readTaskOutcome(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<{ state: string; claimed: boolean; output: string | null; error: string | null } | null> {
  const { rows } = await client.query<{
    state: string;
    claimed: boolean;
    output: string | null;
    error: string | null;
  }>(
    `SELECT t.state::text AS state, t.owner IS NOT NULL AS claimed,
       CASE WHEN t.owner IS NULL THEN t.output::text END AS output,
       CASE WHEN t.owner IS NULL THEN t.error::text END AS error
     FROM ${qualified} AS t WHERE t.id = $1::bigint`,
    [id],
  );
  return rows[0] ?? null;
}

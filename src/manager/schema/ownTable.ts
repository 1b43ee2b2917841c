import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { literal } from "../../shared/postgres/quoting.js";

/**
 * Creates a table for pg-task's own use if it is missing.
 *
 * @param own.name quoted name, with its schema
 * @param own.comment by which the table is recognized as pg-task's own
 * @param own.columns SQL of the columns and constraints
 * @param own.index SQL that creates an index of the table
 * @param isNew whether the task table has just been created or adopted. Rows that an earlier table of this name has left
 *   are then removed.
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if another relation has the name.
 */
export async function ensureOwnTable(
  client: Client,
  own: { readonly name: string; readonly comment: string; readonly columns: string; readonly index?: string },
  isNew: boolean,
): Promise<void> {
  const { name, comment, columns, index = "" } = own;
  const { rows } = await client.query<{ comment: string | null }>(
    "SELECT pg_catalog.obj_description(oid, 'pg_class') AS comment FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)",
    [name],
  );
  const [found] = rows;
  if (found !== undefined && found.comment !== comment) {
    const message = `cannot create ${name}: a relation of this name exists and was not created by pg-task: rename it, or give another "schema" or "table"`;
    throw new PgTaskError("SCHEMA_INCOMPATIBLE", message);
  }
  if (found === undefined) {
    await client.query(`CREATE TABLE ${name} (${columns}); ${index}; COMMENT ON TABLE ${name} IS ${literal(comment)}`);
  } else if (isNew) await client.query(`TRUNCATE ${name}`);
}

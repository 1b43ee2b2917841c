import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { foreignFunctions } from "../migrations.js";
import type { TaskTable } from "../taskTable.js";

/** @throws PgTaskError SCHEMA_INCOMPATIBLE when something of somebody else's has a name that pg-task needs. */
export async function refuseConflictingColumns(client: Client, table: TaskTable): Promise<void> {
  const [name] = await foreignFunctions(client, table);
  const taken = name === undefined ? await foreignRelation(client, table) : `the function ${name}`;
  if (taken === null) return;
  throw new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `cannot make ${table.qualified}: ${taken} exists and was not made by pg-task: rename it, or give another "schema" or "table"`,
  );
}

/**
 * A pause table or ledger may be left over from a table that was dropped: it is known by its columns.
 * Indexes go with their table, so that the name of one is free where the table is not there.
 */
async function foreignRelation(client: Client, table: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT pg_catalog.format('the relation %I.%I', n.nspname, c.relname) AS name
     FROM (SELECT $2::text, ARRAY['group', 'since', 'reason'] UNION ALL
       SELECT unnest($3::text[]), ARRAY['id', 'take', 'running'] UNION ALL
       SELECT unnest($4::text[]), NULL WHERE pg_catalog.to_regclass($5) IS NULL) AS w(name, columns)
     JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1
     JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
     WHERE w.columns IS NULL OR c.relkind NOT IN ('r', 'p') OR NOT w.columns <@ ARRAY(
       SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
     ORDER BY 1 LIMIT 1`,
    [
      table.schema,
      table.pauseTable,
      [table.ledger1, table.ledger2],
      [table.dueIndex, table.planIndex],
      table.qualified,
    ],
  );
  return rows[0]?.name ?? null;
}

import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { foreignFunctions } from "../migrations.js";
import type { TaskTable } from "../taskTable.js";

/**
 * Checks that the names that pg-task needs are free.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if a function or relation that pg-task did not create has one of these names.
 */
export async function refuseConflictingNames(client: Client, table: TaskTable): Promise<void> {
  const [name] = await foreignFunctions(client, table);
  const taken = name === undefined ? await findForeignRelation(client, table) : `the function ${name}`;
  if (taken === null) return;
  throw new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `cannot create or change ${table.qualified}: ${taken} exists and was not created by pg-task: rename it, or give another "schema" or "table"`,
  );
}

/**
 * Finds a relation that has a name pg-task needs but was not created by pg-task. A side table may remain
 * from a dropped task table and is recognized by its columns. Indexes are dropped together with their table. Their
 * names are therefore checked only while the task table does not exist.
 *
 * @returns a description of the relation, or null if there is none.
 */
async function findForeignRelation(client: Client, table: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT pg_catalog.format('the relation %I.%I', n.nspname, c.relname) AS name
     FROM (SELECT $2::text, ARRAY['group', 'since', 'reason'] UNION ALL
       SELECT unnest($3::text[]), ARRAY['id', 'take', 'running', 'start', 'stop', 'place'] UNION ALL
       SELECT $6, ARRAY['id', 'system', 'database', 'table', 'version', 'cluster', 'label', 'since'] UNION ALL
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
      [table.dueIndex, table.planIndex, table.keepIndex, table.schedulesIndex, table.keyIndex],
      table.qualified,
      table.homeTable,
    ],
  );
  return rows[0]?.name ?? null;
}

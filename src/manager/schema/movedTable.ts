import { PgTaskError } from "../../shared/errors.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/** Returns where the table with this oid is, quoted; null if it was dropped. */
export async function placeOf(client: Queryable, oid: number): Promise<string | null> {
  const { rows } = await client.query<{ place: string }>(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS place FROM pg_catalog.pg_class AS c
     JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.oid`,
    [oid],
  );
  return rows[0]?.place ?? null;
}

/**
 * Throws if the table was renamed or moved. A new one would be created without the tasks. It is known by its oid if a
 * manager has served it. Otherwise it still has the trigger that calls the wake-up function of this place, or the
 * function `finish` beside it names this place until a start has replaced it. Only tables of roles whose privileges the
 * user has are looked at, so that nobody else can keep a table from being created.
 *
 * @throws PgTaskError SCHEMA_MOVED
 */
export async function requireNotMoved(client: Queryable, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ schema: string; name: string; hasSchema: boolean }>(
    `SELECT n.nspname::pg_catalog.text AS schema, c.relname::pg_catalog.text AS name,
       EXISTS (SELECT FROM pg_catalog.pg_namespace AS s WHERE s.nspname OPERATOR(pg_catalog.=) $3) AS "hasSchema"
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE pg_catalog.to_regclass($1) IS NULL AND NOT c.relispartition
       AND c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p']::pg_catalog."char"[])
       AND (c.oid OPERATOR(pg_catalog.=) $2::pg_catalog.oid OR pg_catalog.pg_has_role(c.relowner, 'USAGE') AND (
         EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
           JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid
           JOIN pg_catalog.pg_namespace AS s ON s.oid OPERATOR(pg_catalog.=) p.pronamespace
           WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal AND t.tgname OPERATOR(pg_catalog.=) $5
             AND p.proname OPERATOR(pg_catalog.=) $5 AND s.nspname OPERATOR(pg_catalog.=) $3)
         OR c.relname OPERATOR(pg_catalog.=) $4 AND EXISTS (SELECT FROM pg_catalog.pg_proc AS p
           WHERE p.pronamespace OPERATOR(pg_catalog.=) c.relnamespace AND p.proname OPERATOR(pg_catalog.=) $6
             AND pg_catalog.strpos(p.prosrc, $1) OPERATOR(pg_catalog.>) 0)))
     ORDER BY c.oid OPERATOR(pg_catalog.=) $2::pg_catalog.oid DESC NULLS LAST, c.oid LIMIT 1`,
    [table.qualified, table.servedOid, table.schema, table.table, table.wakeUp, table.finish],
  );
  const [found] = rows;
  if (found === undefined) return;
  const settings = [
    ...(found.schema === table.schema ? [] : [`pg_task.schema to ${identifier(found.schema)}`]),
    ...(found.name === table.table ? [] : [`pg_task.table to ${identifier(found.name)}`]),
  ];
  const remedy = `set ${settings.join(" and ")}, or undo it: ${undoing(found, table).join("; ")}`;
  throw new PgTaskError(
    "SCHEMA_MOVED",
    `table ${table.qualified} is now ${identifier(found.schema)}.${identifier(found.name)}, and nothing starts: ${remedy}`,
    { remedy },
  );
}

function undoing(
  found: { readonly schema: string; readonly name: string; readonly hasSchema: boolean },
  { schema, table }: TaskTable,
): string[] {
  const statements: string[] = [];
  const inSchema = `ALTER TABLE ${identifier(found.schema)}.`;
  if (found.name !== table) statements.push(`${inSchema}${identifier(found.name)} RENAME TO ${identifier(table)}`);
  if (found.schema === schema) return statements;
  const whole = `ALTER SCHEMA ${identifier(found.schema)} RENAME TO ${identifier(schema)}`;
  return [...statements, found.hasSchema ? `${inSchema}${identifier(table)} SET SCHEMA ${identifier(schema)}` : whole];
}
